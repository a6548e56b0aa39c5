"""What `hetfeat` offers in Python: thin functions over the layers below."""
