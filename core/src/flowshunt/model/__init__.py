"""The throughput model: what a host with a NIC keeps up with, from costs per frame, cores, buffers and traffic.

A discrete-event simulation of arrivals, host buffers and cores, and a search for the greatest rate without loss. All
results are plain data; `flowshunt model` renders them.
"""
