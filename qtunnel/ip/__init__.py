"""Inner IP packets, bytes in and bytes out."""
