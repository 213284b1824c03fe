#!/usr/bin/env python3
"""A name server on 127.0.0.1: names that begin with `known.` have the address 10.9.8.7, others do not exist.

  name_server.py READY    creates the file READY when it accepts queries
"""
import pathlib
import socket
import sys

ADDRESS = bytes([10, 9, 8, 7])


def answer(query):
    end = query.index(0, 12) + 5
    known = query[12:].startswith(b"\5known")
    ipv4 = query[end - 4:end - 2] == b"\0\1"
    record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + ADDRESS if known and ipv4 else b""
    flags = b"\x81\x80" if known else b"\x81\x83"
    return query[:2] + flags + b"\0\1" + (b"\0\1" if record else b"\0\0") + b"\0\0\0\0" + query[12:end] + record


server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
pathlib.Path(sys.argv[1]).touch()
while True:
    packet, sender = server.recvfrom(512)
    server.sendto(answer(packet), sender)
