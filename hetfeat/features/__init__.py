"""Named and versioned features of programs, tasks and hardware."""
