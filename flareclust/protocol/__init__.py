"""What sites and server agree on: tasks, replies, schemas, the algorithms, the files of a result."""
