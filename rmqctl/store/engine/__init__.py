"""A store that is open for writing, like RocketMQ's DefaultMessageStore."""
