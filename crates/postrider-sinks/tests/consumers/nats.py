# Reads all messages of a stream with the official client and prints one JSON line for each: body in base64, headers as
# the reference says to decode them, subject. Arguments: server, stream, number of messages.
import asyncio, base64, json, sys
from urllib.parse import unquote
import nats


async def main(server, stream, count):
    client = await nats.connect(server)
    jetstream = client.jetstream()
    pull = await jetstream.pull_subscribe("", stream=stream, durable="reader")
    left = count
    while left > 0:
        for message in await pull.fetch(min(left, 50), timeout=20):
            body = base64.b64encode(message.data).decode()
            headers = {unquote(name): unquote(value) for name, value in message.headers.items()}
            print(json.dumps({"body": body, "headers": headers, "subject": message.subject}))
            await message.ack()
            left -= 1
    await client.close()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
