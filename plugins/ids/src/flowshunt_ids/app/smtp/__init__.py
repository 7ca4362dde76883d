"""SMTP: commands, replies, and the mails between them."""
