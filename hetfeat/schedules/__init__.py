"""Schedules of a task: its design space, sampling it, varying a trace, replaying one."""
