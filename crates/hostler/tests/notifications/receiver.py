"""A webhook receiver and a mail server for tests, in Python's standard library.

receiver.py http FOLDER: writes its port to FOLDER/port, each request to FOLDER/requests as a line of JSON, and
answers as FOLDER/answer says: a status, with headers after it; `hold` to answer nothing.

receiver.py smtp FOLDER PORT [CERTIFICATE KEY]: speaks SMTP on PORT, and writes each mail to FOLDER/mails as a line of
JSON. With a certificate, it accepts mail only after STARTTLS and a login. FOLDER/commands has all commands.
"""

import base64
import hashlib
import hmac
import json
import os
import socket
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = b"0123456789abcdef"
lock = threading.Lock()


def record(folder, name, entry):
    with lock, open(os.path.join(folder, name), "a") as file:
        file.write(json.dumps(entry) + "\n")


class Webhook(BaseHTTPRequestHandler):
    folder = ""

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        get = lambda name: self.headers.get(name, "")
        signed = f"{get('webhook-id')}.{get('webhook-timestamp')}.".encode() + body
        expected = "v1," + base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        entry = {
            "method": self.command,
            "path": self.path,
            "id": get("webhook-id"),
            "signed": any(hmac.compare_digest(expected, it) for it in get("webhook-signature").split(" ")),
            "age": abs(time.time() - int(get("webhook-timestamp") or 0)),
            "at": time.time(),
            "body": json.loads(body) if body else None,
        }
        # First, because the test may change the answer once it sees the request.
        with open(os.path.join(self.folder, "answer")) as file:
            answer = file.read().split("\n")
        record(self.folder, "requests", entry)
        if answer[0] == "hold":
            time.sleep(600)
            return
        self.send_response(int(answer[0]))
        for line in filter(None, answer[1:]):
            self.send_header(*line.split(": ", 1))
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST = do_PUT = handle_any

    def log_message(self, *_):
        pass


def serve_mail(connection, folder, tls):
    stream = connection.makefile("rwb")
    is_encrypted, has_login = False, False

    def say(line):
        stream.write(line.encode() + b"\r\n")
        stream.flush()

    say("220 test ESMTP")
    sender, recipients = "", []
    while raw := stream.readline():
        line = raw.decode().rstrip("\r\n")
        verb = line[:4].upper()
        record(folder, "commands", {"encrypted": is_encrypted, "line": line})
        if verb == "EHLO":
            say("250-test")
            if tls and is_encrypted:
                say("250-AUTH PLAIN")
            if tls and not is_encrypted:
                say("250-STARTTLS")
            say("250 8BITMIME")
        elif verb == "STAR" and tls:
            say("220 go on")
            try:
                connection = tls.wrap_socket(connection, server_side=True)
            except OSError:
                return
            stream, is_encrypted = connection.makefile("rwb"), True
        elif verb == "AUTH" and is_encrypted:
            has_login = base64.b64decode(line.split()[2]) == b"\0hostler\0correct horse"
            say("235 ok" if has_login else "535 wrong")
        elif tls and not has_login and verb in ("MAIL", "RCPT", "DATA"):
            say("530 log in first")
        elif verb == "MAIL":
            sender, recipients = line[10:].split(">")[0].lstrip("<"), []
            say("250 ok")
        elif verb == "RCPT":
            recipient = line[8:].split(">")[0].lstrip("<")
            if recipient.startswith("nobody@"):
                say("550 no such user")
            else:
                recipients.append(recipient)
                say("250 ok")
        elif verb == "DATA":
            say("354 go on")
            text = b""
            while (part := stream.readline()) not in (b".\r\n", b""):
                text += part[1:] if part.startswith(b".") else part
            record(folder, "mails", {"from": sender, "to": recipients, "text": text.decode()})
            say("250 accepted")
        elif verb == "QUIT":
            say("221 bye")
            return
        elif verb in ("RSET", "NOOP"):
            say("250 ok")
        else:
            say("502 unknown")


def main():
    mode, folder = sys.argv[1:3]
    if mode == "http":
        Webhook.folder = folder
        server = ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
        with open(os.path.join(folder, "port.new"), "w") as file:
            file.write(str(server.server_port))
        os.rename(os.path.join(folder, "port.new"), os.path.join(folder, "port"))
        server.serve_forever()
    tls = None
    if len(sys.argv) > 4:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(sys.argv[4], sys.argv[5])
    with socket.create_server(("127.0.0.1", int(sys.argv[3]))) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve_mail, args=(connection, folder, tls), daemon=True).start()


main()
