"""A server of tokens over TLS for a registry (distribution, docs/spec/auth/token.md and oauth.md).

    tokens.py DIRECTORY

DIRECTORY has server.crt and server.key, by which the server is believed, and tokens.crt and
tokens.key, by which its tokens are. It prints its port. Everybody may read below open/, `reader`
below own/ too, and `writer` may write. Each request for a token becomes a line of DIRECTORY/log: who
made it, and the scope.
"""

import base64
import json
import ssl
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

PASSWORDS = {"reader": "secret", "writer": "ink"}
# Tokens of identity, as `docker login` stores them for some registries.
IDENTITIES = {"identity-of-reader": "reader"}
SECONDS = 300

directory = Path(sys.argv[1])


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def token(user, service, access):
    """A JSON web token, signed with RS256 by openssl."""
    certificate = "".join((directory / "tokens.crt").read_text().split("-----")[2].split())
    head = {"typ": "JWT", "alg": "RS256", "x5c": [certificate]}
    now = int(time.time())
    claims = {
        "iss": "tests", "sub": user, "aud": service, "jti": "1", "access": access,
        "iat": now - 10, "nbf": now - 10, "exp": now + SECONDS,
    }
    text = b".".join(encoded(json.dumps(part).encode()) for part in (head, claims))
    command = ["openssl", "dgst", "-sha256", "-sign", directory / "tokens.key"]
    signature = subprocess.run(command, input=text, stdout=subprocess.PIPE, check=True).stdout
    return (text + b"." + encoded(signature)).decode()


def may(user, name, action):
    if action == "pull":
        return name.startswith("open/") or user in PASSWORDS
    return user == "writer"


class Tokens(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def grant(self, user, fields, name):
        """Answers with a token for what the user may do of what is wanted."""
        wanted = fields.get("scope", [])
        with open(directory / "log", "a") as log:
            log.write(f"{user or '-'} {' '.join(wanted)}\n")
        access = []
        for scope in wanted:
            kind, image, actions = scope.split(":")
            actions = [action for action in actions.split(",") if may(user, image, action)]
            access.append({"type": kind, "name": image, "actions": actions})
        service = fields.get("service", [""])[0]
        self.answer(200, {name: token(user, service, access), "expires_in": SECONDS})

    def do_GET(self):
        user = ""
        scheme, _, pair = self.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic":
            user, _, password = base64.b64decode(pair).decode().partition(":")
            if PASSWORDS.get(user) != password:
                return self.answer(401, {"details": "incorrect username or password"})
        self.grant(user, parse_qs(urlsplit(self.path).query), "token")

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        fields = parse_qs(self.rfile.read(length).decode())
        user = IDENTITIES.get(fields.get("refresh_token", [""])[0])
        if fields.get("grant_type") != ["refresh_token"] or not user:
            return self.answer(401, {"details": "no such identity"})
        self.grant(user, fields, "access_token")


server = ThreadingHTTPServer(("127.0.0.1", 0), Tokens)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(directory / "server.crt", directory / "server.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
