"""FTP: commands, replies, and the connections that carry files."""
