"""asyncio: when things happen, never what."""
