"""The work behind the commands: each job trains, tunes, compiles or reports, and logs its run."""
