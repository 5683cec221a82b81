"""Network namespaces of Linux, joined by a bridge.

The machine itself gets no address by them, of IPv6 neither: browsers of other tests end their requests when one of its
interfaces gets or loses an address (net::ERR_NETWORK_CHANGED).
"""

import subprocess

import pytest


def run_ip(arguments: str) -> None:
    """Run `ip` with these arguments. Raises CalledProcessError."""
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True)


def add_bridge(bridge: str) -> None:
    """Add a bridge, which is down; skip the test where this process may not."""
    try:
        run_ip(f"link add {bridge} type bridge")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")
    run_ip(f"link set {bridge} addrgenmode none")


def add_namespace(name: str, bridge: str, port: str, address: str) -> None:
    """Add a namespace with the interface eth0, which has `address` and ends in `port` of the bridge."""
    run_ip(f"netns add {name}")
    run_ip(f"link add {port} type veth peer name eth0 netns {name}")
    run_ip(f"link set {port} addrgenmode none")
    run_ip(f"link set {port} master {bridge} up")
    run_ip(f"-n {name} address add {address}/24 dev eth0")
    run_ip(f"-n {name} link set eth0 up")
    run_ip(f"-n {name} link set lo up")


def remove_namespace(name: str, port: str) -> None:
    """Remove a namespace and its port, where they are."""
    subprocess.run(["ip", "link", "del", port], check=False, capture_output=True)
    subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def remove_bridge(bridge: str) -> None:
    """Remove a bridge, where it is."""
    subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)
