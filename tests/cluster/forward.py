"""forward.py ADDRESS TARGET PORT: pass what comes to a port of ADDRESS, which is printed, on to TARGET:PORT. Ends with its standard input.

Run in a node's network namespace, it lets the machine reach a pod.
"""

from __future__ import annotations

import asyncio
import sys


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    except OSError:
        return
    finally:
        sink.close()


async def main(address: str, target: str, port: int) -> None:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(target, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, back), _pump(there, writer))

    server = await asyncio.start_server(forward, address, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
