"""Find calls in a syntax tree that may block, and check whether they have a timeout.

Calls are recognised by name only. A call of such a name that does not block must be listed as an exception, so that no
new wait is missed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

TIMEOUTS = ("timeout", "timeout_s", "timeout_seconds", "limit_s", "deadline_s", "graceful_shutdown_timeout")
# Methods that wait for ever if called without arguments; str.join and dict.get have one.
WITHOUT_ARGUMENTS = frozenset({"join", "wait", "get", "acquire", "result", "results", "communicate", "recv", "accept"})
# Methods that wait whatever their arguments are.
ALWAYS = frozenset(
    {"accept", "barrier", "connect", "monitored_barrier", "recv", "recv_bytes", "recv_fds", "recv_into", "recvfrom"}
)
# module.function -> number of positional arguments with which a timeout is given; 0 if it can only be a keyword.
FUNCTIONS = {
    "subprocess.run": 0,
    "subprocess.call": 0,
    "subprocess.check_call": 0,
    "subprocess.check_output": 0,
    "socket.create_connection": 2,
    "select.select": 4,
    "dist.init_process_group": 0,
    "dist.new_group": 0,
    "urllib.request.urlopen": 0,
    "request.urlopen": 0,
    "requests.get": 0,
    "requests.post": 0,
    "ray.get": 9,
    "os.waitpid": 9,
    "os.wait": 9,
    "os.waitid": 9,
    "os.read": 9,
    "os.system": 9,
    "fcntl.flock": 9,
    "fcntl.lockf": 9,
    "init_device_mesh": 9,
}
AT_ONCE = frozenset({"os.WNOHANG", "fcntl.LOCK_NB"})


def scopes(tree: ast.AST, name: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield every node with the dotted name of the function that contains it."""
    for node in ast.iter_child_nodes(tree):
        inner = name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{name}.{node.name}".lstrip(".")
        yield name, node
        yield from scopes(node, inner)


def dotted(node: ast.expr) -> str:
    """Return ``a.b.c`` for a chain of names; ``?`` replaces any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"


def has_timeout(call: ast.Call) -> bool:
    named = {word.arg: word.value for word in call.keywords}
    given = [named[name] for name in TIMEOUTS if name in named]
    return None in named or any(not (isinstance(value, ast.Constant) and value.value is None) for value in given)


def is_unbounded(call: ast.Call) -> bool:
    """Return whether the call may wait for ever."""
    name = dotted(call.func)
    method = name.rpartition(".")[2]
    if has_timeout(call):
        return False
    parts = [part for argument in call.args for part in ast.walk(argument) if isinstance(part, ast.expr)]
    if AT_ONCE & {dotted(part) for part in parts}:
        return False
    if name in FUNCTIONS:
        return not FUNCTIONS[name] or len(call.args) < FUNCTIONS[name]
    if not isinstance(call.func, ast.Attribute):
        return False
    is_blocking_off = any(isinstance(argument, ast.Constant) and argument.value is False for argument in call.args)
    if method in ALWAYS:
        return True
    return method in WITHOUT_ARGUMENTS and not call.args and not is_blocking_off


def unbounded(modules: dict[str, ast.Module]) -> set[str]:
    """Return ``module:function: call`` of every call that may wait for ever."""
    return {
        f"{module}:{scope}: {dotted(node.func)}"
        for module, tree in modules.items()
        for scope, node in scopes(tree)
        if isinstance(node, ast.Call) and is_unbounded(node)
    }


# Functions of Ray that code outside controller/ray_calls.py may call: they send no request to Ray's servers.
OF_RAY = frozenset({"ray.remote", "ray.method", "ray.is_initialized", "ray.util.get_node_ip_address"})


def calls_into_ray(modules: dict[str, ast.Module]) -> set[str]:
    """Return ``module:function: call`` of every call into Ray: its functions, and ``.remote()`` of actors."""
    found = set()
    for module, tree in modules.items():
        names = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ray"
            for alias in node.names
            if alias.name[0].islower()  # constructing a class of Ray sends no request
        }
        for scope, node in scopes(tree):
            if not isinstance(node, ast.Call):
                continue
            name = dotted(node.func)
            is_of_ray = name.split(".")[0] in {"ray", *names} and name not in OF_RAY
            is_started = name.rpartition(".")[2] == "remote" and name not in OF_RAY
            if is_of_ray or is_started:
                found.add(f"{module}:{scope}: {name}")
    return found
