"""One module per config group: its dataclass, what each field takes, and the rules within the group."""
