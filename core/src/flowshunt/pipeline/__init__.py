"""The pipeline: NIC to host buffers to engine to verdict to offload; bypass modes, measurement, comparison."""
