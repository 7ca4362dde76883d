"""HTTP/1.x: parser, transactions, buffers, with the answers that libhtp gives to Suricata."""
