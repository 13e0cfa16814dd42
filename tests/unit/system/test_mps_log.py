"""Logs of MPS: what became of servers, who was hit by whose fault, and lines cut anywhere."""

from headway.system.mps_log import (
    MOST_BYTES,
    Fault,
    ServerRecord,
    control_facts,
    parse_log,
    read_log,
    server_facts,
)

CONTROL = """\
[2026-11-30 21:52:03.488 Control  8690] Starting control daemon using socket /run/p/control
[2026-11-30 21:52:03.488 Control  8690] To connect CUDA applications to this daemon, set env \
CUDA_MPS_PIPE_DIRECTORY=/run/p
[2026-11-30 21:52:09.001 Control  8690] Accepting connection...
[2026-11-30 21:52:09.001 Control  8690] Starting new server 8701 for user 1000
[2026-11-30 21:52:09.301 Control  8690] NEW SERVER 8701: Ready
[2026-11-30 21:52:10.001 Control  8690] NEW CLIENT 4711 from user 1000: Server already exists
[2026-11-30 21:52:11.001 Control  8690] Server 8701 exited with status 0
[2026-11-30 21:52:12.001 Control  8690] Starting new server 8702 for user 0
[2026-11-30 21:52:12.011 Control  8690] Server 8702 exited with status 1
[2026-11-30 21:52:13.001 Control  8690] Exit with status 1
"""
SERVER = """\
[2026-11-30 21:52:09.101 Other  8701] Volta MPS: Creating server context on device 0
[2026-11-30 21:52:10.001 Server  8701] New client 4711 connected
[2026-11-30 21:52:10.002 Server  8701] Volta MPS: status of client {4711, 1} is ACTIVE
[2026-11-30 21:52:10.003 Server  8701] New client 4712 connected
[2026-11-30 21:52:10.004 Server  8701] New client 4713 connected
[2026-11-30 21:52:20.001 Server  8701] Volta MPS: Server is handling a fatal GPU error.
[2026-11-30 21:52:20.002 Server  8701] Volta MPS: The following clients have a sticky error set:
[2026-11-30 21:52:20.003 Server  8701] 4711
[2026-11-30 21:52:20.004 Server  8701] 4712
[2026-11-30 21:52:21.001 Server  8701] Volta MPS: status of client {4711, 1} is INACTIVE
[2026-11-30 21:52:21.002 Server  8701] Client 4711 disconnected
[2026-11-30 21:52:21.003 Server  8701] Client 4712 disconnected
"""
RECOVERED = (
    "[2026-11-30 21:52:21.100 Server  8701] Volta MPS: Creating server context on device 0\n"
)


def test_what_became_of_each_server():
    facts = control_facts(parse_log(CONTROL))
    assert facts.ready
    assert facts.servers == (ServerRecord(8701, 1000, True, 0), ServerRecord(8702, 0, False, 1))
    assert facts.clients == ((4711, 1000),)
    assert facts.exit_status == 1


def test_a_server_that_could_not_even_be_started():
    line = (
        "[2026-11-30 21:52:12.001 Control  8690] Failed to start server using uid 7. No more pids"
    )
    facts = control_facts(parse_log(line))
    assert facts.failed_starts == ("Failed to start server using uid 7. No more pids",)
    assert facts.servers == ()


def test_a_pid_given_twice_is_the_later_server():
    again = CONTROL.replace("8702", "8701")
    assert control_facts(parse_log(again)).server(8701) == ServerRecord(8701, 0, False, 1)
    assert control_facts(parse_log(again)).server(9) is None


def test_a_server_whose_start_the_log_has_lost_is_known_still():
    tail = CONTROL.splitlines()[-2]
    assert control_facts(parse_log(tail)).servers == (ServerRecord(8702, None, False, 1),)


def test_a_fault_names_its_victims_and_ends():
    facts = server_facts(parse_log(SERVER))
    assert facts.faults == (Fault((4711, 4712), over=False),)
    assert facts.connected == (4713,)
    assert facts.inactive == (4711,)
    assert server_facts(parse_log(SERVER + RECOVERED)).faults == (Fault((4711, 4712), over=True),)


def test_a_number_that_stands_elsewhere_is_no_victim():
    later = SERVER + RECOVERED + "[2026-11-30 21:52:22.100 Server  8701] 4713\n"
    assert server_facts(parse_log(later)).faults == (Fault((4711, 4712), over=True),)


def test_the_first_context_of_a_server_is_no_recovery():
    assert server_facts(parse_log(SERVER.splitlines()[0])).faults == ()


def test_a_server_that_could_not_start_says_so():
    line = "[2026-11-30 21:52:09.101 Server  8702] MPS server failed to start\n"
    assert server_facts(parse_log(line)).failed
    assert not server_facts(parse_log(SERVER)).failed


def test_a_log_is_read_by_whole_lines_from_where_it_was_left(tmp_path):
    path = tmp_path / "control.log"
    path.write_text(CONTROL[:-5])
    first, position = read_log(path)
    path.write_text(CONTROL)
    rest, end = read_log(path, position)
    assert first + rest == parse_log(CONTROL)
    assert end == len(CONTROL)
    assert read_log(path, end) == ((), end)


def test_a_log_that_is_not_there_or_was_made_anew(tmp_path):
    path = tmp_path / "control.log"
    assert read_log(path, 70) == ((), 0)
    path.write_text(SERVER)
    assert len(read_log(path, 10**6)[0]) == len(SERVER.splitlines())


def test_of_a_huge_log_the_end_is_read(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(b"x" * 2 * MOST_BYTES + b"\n" + SERVER.encode())
    assert read_log(path)[0] == parse_log(SERVER)


def test_bytes_that_are_no_text_hide_no_line():
    assert len(parse_log(b"\xff\xfe\n".decode(errors="replace") + CONTROL)) == 10
