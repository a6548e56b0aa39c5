"""What learns behind each cost model; one module each, imported when it is needed."""
