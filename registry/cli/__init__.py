"""The commands, one file each; `mlproject.py` names them and loads the one that is asked for."""
