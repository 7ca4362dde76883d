"""Napatech SmartNICs for flowshunt: host buffers and a flow table on the card."""
