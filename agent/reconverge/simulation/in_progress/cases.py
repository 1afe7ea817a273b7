"""Cases for limits on work in progress, drawn from a seed: traffic, faults, and the checks at the end."""

from __future__ import annotations

from reconverge.simulation.in_progress.world import LOOKS, SlotNode, SlotWorld


def try_slots(seed: int) -> list[str]:
    """Runs the case drawn from `seed`. Returns a sentence for each broken promise."""
    world = SlotWorld(seed)
    random, lasts_ns = world.random, world.limit.window_ns
    short_ns = random.choice([world.interval_ns // 20, world.interval_ns, lasts_ns // 2, 3 * lasts_ns])
    pace_ns = max(1, int(random.choice([0.02, 0.2, 1.0]) * world.interval_ns))
    faults = random.random() < 0.8
    for _ in range(LOOKS):
        world.pass_until(world.now_ns + int(random.expovariate(1.0) * pace_ns))
        node = random.choice(world.nodes)
        if random.random() < 0.9:
            _request(world, node, short_ns)
        elif faults:
            _fault(world, node)
        if world.problems:
            return world.problems
    world.heal()
    _all_ends(world)
    world.pass_until(world.now_ns + world.settled_ns)
    return world.problems + world.left_behind() + _killed_comes_back(world) + _one_gets_all(world)


def _request(world: SlotWorld, node: SlotNode, short_ns: int) -> None:
    random = world.random
    before = len(node.work)
    patience_ns = random.choice([0, 0, world.interval_ns, 5 * world.interval_ns])
    world.asks(node, random.choice(world.keys), random.choice([1, 1, 1, 2]), patience_ns)
    for work in node.work[before:]:
        world.end_later(work, int(random.expovariate(1.0) * short_ns))
    if random.random() < 0.1:  # some end early; else work that had to wait would never end
        for work in [work for work in node.work if random.random() < 0.5]:
            world.ends(work)


def _fault(world: SlotWorld, node: SlotNode) -> None:
    random = world.random
    what = random.choice(["cut", "heal", "heal", "kill", "start", "start", "stop", "down", "up", "up", "lose", "fork"])
    if what == "cut":
        world.cut.add(node.index)
    elif what == "heal":
        world.cut.clear()
    elif what == "kill":
        world.kill(node)
    elif what == "start" and not node.alive:
        world.start(node)
    elif what == "stop" and node.alive and not node.stopping:
        node.stopping = True
        node.syncer.leave(node.clock.monotonic_ns())
        world.pass_until(world.now_ns)
    elif what == "fork" and node.alive:
        world.kill(node)  # a new process, the child, takes its place; the parent's work ends
        world.start(node)
    elif what in ("down", "up"):
        world.down = what == "down"
    elif what == "lose" and random.random() < 0.3:
        world.hub.lose_data()


def _all_ends(world: SlotWorld) -> None:
    for node in world.nodes:
        if node.stopping:
            world.kill(node)
        world.nothing_waits(node)
        for work in list(node.work):
            world.ends(work)


def _take_all(world: SlotWorld, node: SlotNode, key: str) -> int:
    """Returns the number of slots that a node gets for `key` if it asks until leases and the hub have settled."""
    until_ns = world.now_ns + world.settled_ns
    while world.now_ns < until_ns and world.in_progress(key) < world.limit.capacity:
        for _ in range(world.limit.capacity - world.in_progress(key)):
            world.asks(node, key, 1, world.interval_ns)
        world.pass_until(world.now_ns + world.interval_ns)
    return world.in_progress(key)


def _killed_comes_back(world: SlotWorld) -> list[str]:
    """Checks that a killed node's slots become free when its lease ends. Returns a sentence for each broken promise."""
    if len(world.nodes) < 2:
        return []
    one, other = world.nodes[:2]
    for node in (one, other):
        if not node.alive:
            world.start(node)
    key = world.keys[0]
    held = _take_all(world, one, key)
    world.pass_until(world.now_ns + 2 * world.interval_ns + 2 * world.timeout_ns)
    world.kill(one)
    killed_ns, lease_ns = world.now_ns, min(world.limit.window_ns, world.node_lease_ns)
    while world.now_ns < killed_ns + lease_ns + 8 * world.interval_ns + 2 * world.timeout_ns:
        for _ in range(world.limit.capacity - world.in_progress(key)):
            world.asks(other, key, 1, 0)
        world.pass_until(world.now_ns + world.interval_ns // 4 + 1)
    got = world.in_progress(key)
    if held == world.limit.capacity == got:
        return []
    return [f"a node was killed with {held} of {world.limit.capacity} slots, and after its lease another has {got}"]


def _one_gets_all(world: SlotWorld) -> list[str]:
    """Checks that a restarted node gets all slots, and that none stays in use.

    Returns a sentence per broken promise.
    """
    _all_ends(world)
    world.pass_until(world.now_ns + world.settled_ns)
    node = world.nodes[-1]
    if not node.alive:
        world.start(node)
    problems = []
    for key in world.keys:
        got = _take_all(world, node, key)
        if got != world.limit.capacity:
            problems.append(f"one node can have {got} of {world.limit.capacity} slots of {key}")
    _all_ends(world)
    return problems + world.problems + world.left_behind()
