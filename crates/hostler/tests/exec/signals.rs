//! Signals to the caller, and the end of commands whose caller has gone.

use crate::machines::Machines;

/// A command of two processes that report their signals. Each signal except CONT ends it with exit code 3.
const TREE: &str = "\
import os, signal, sys, time
who = 'parent' if os.fork() else 'child'
def got(number, frame):
    os.write(1, f'{who} {signal.Signals(number).name}\\n'.encode())
    if number != signal.SIGCONT:
        if who == 'parent':
            os.wait()
        os._exit(3)
for name in ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGCONT']:
    if signal.getsignal(getattr(signal, name)) != signal.SIG_IGN:
        signal.signal(getattr(signal, name), got)
os.write(1, b'up\\n')
while True:
    # A signal that comes just before a sleep is only heard after it.
    time.sleep(0.02)
";

/// A command of two processes without handlers for these signals. No shell: while dash starts a program, it loses a SIGINT.
const PLAIN: &str = "\
import os, signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.fork()
os.write(1, b'up\\n')
while True:
    signal.pause()
";

/// Shared code of the scripts.
const COMMON: &str = "\
import atexit, faulthandler, os, signal, subprocess, time
# One that hangs says where.
faulthandler.dump_traceback_later(60, exit=True)
def start(*argv, **more):
    dsh = subprocess.Popen(['dsh', '--node', 'n2', *argv], stdout=subprocess.PIPE, **more)
    # What a check that fails leaves behind would hold the output open.
    atexit.register(dsh.kill)
    return dsh
def state(pid):
    return open(f'/proc/{pid}/stat').read().rsplit(') ')[1][0]
def soon(what, condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)
";

#[test]
fn command_gets_its_callers_signals_and_ends_with_it() {
    let machines = Machines::of(2);
    signals_reach_all_processes_of_the_command(&machines);
    a_command_stops_and_goes_on_with_its_caller(&machines);
    nothing_is_left_of_a_command_whose_caller_is_gone(&machines);
}

fn signals_reach_all_processes_of_the_command(machines: &Machines) {
    machines.write("tree.py", TREE);
    machines.write("plain.py", PLAIN);
    let script = "
for name in ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2']:
    dsh = start('python3', 'tree.py')
    assert [dsh.stdout.readline() for _ in range(2)] == [b'up\\n'] * 2
    dsh.send_signal(getattr(signal, name))
    said = sorted(dsh.stdout.read().decode().split('\\n')[:-1])
    code = dsh.wait()
    if (said, code) != ([f'child {name}', f'parent {name}'], 3):
        print(name, said, code)

# One without a handler ends by it, and so does its caller.
for name in ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGUSR1']:
    dsh = start('python3', 'plain.py')
    assert [dsh.stdout.readline() for _ in range(2)] == [b'up\\n'] * 2
    dsh.send_signal(getattr(signal, name))
    code = dsh.wait()
    if code != -getattr(signal, name):
        print(name, code)

# What whoever called ignores does not reach the command.
dsh = start('python3', 'tree.py', preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
assert [dsh.stdout.readline() for _ in range(2)] == [b'up\\n'] * 2
dsh.send_signal(signal.SIGHUP)
time.sleep(0.3)
dsh.send_signal(signal.SIGUSR1)
said = sorted(dsh.stdout.read().decode().split('\\n')[:-1])
if said != ['child SIGUSR1', 'parent SIGUSR1']:
    print('ignored', said)
";
    assert_eq!(machines.python(0, &format!("{COMMON}{script}")), Vec::<String>::new());
    machines.wait_for_none(1, "plain.py", 10);
    machines.wait_for_none(1, "tree.py", 1);
}

fn a_command_stops_and_goes_on_with_its_caller(machines: &Machines) {
    // The script counts while it is not stopped.
    machines.write("counts.py", "import os, time\nopen('pid', 'w').write(f'{os.getpid()}\\n')\nwhile True:\n    open('count', 'a').write('.')\n    time.sleep(0.01)\n");
    let script = "
def there():
    # As another command there sees it.
    words = subprocess.run(['dsh', '--node', 'n2', 'cat', f'/proc/{pid}/stat'], stdout=subprocess.PIPE).stdout.decode()
    return words.rsplit(') ')[1][0]
def counts():
    before = os.path.getsize('count')
    time.sleep(0.2)
    return os.path.getsize('count') > before
dsh = start('python3', 'counts.py')
soon('it to count', lambda: os.path.exists('count') and os.path.getsize('count') > 3 and open('pid').read().endswith('\\n'))
pid = open('pid').read().strip()
for number in [signal.SIGTSTP, signal.SIGTSTP]:
    dsh.send_signal(number)
    soon('the caller to be stopped', lambda: state(dsh.pid) == 'T')
    soon('the command to be stopped', lambda: there() == 'T')
    assert not counts(), 'it counts while it is stopped'
    dsh.send_signal(signal.SIGCONT)
    soon('the caller to go on', lambda: state(dsh.pid) != 'T')
    soon('the command to go on', counts)
dsh.terminate()
print(dsh.wait())

# A command that stops by itself stops its caller.
dsh = start('sh', '-c', 'kill -STOP $$; echo went on')
soon('the caller to be stopped', lambda: state(dsh.pid) == 'T')
dsh.send_signal(signal.SIGCONT)
print(dsh.stdout.read().decode().strip(), dsh.wait())
";
    assert_eq!(machines.python(0, &format!("{COMMON}{script}")), ["-15", "went on 0"]);
}

fn nothing_is_left_of_a_command_whose_caller_is_gone(machines: &Machines) {
    // A process that ignores all signals, in a session of its own, with a detached child.
    machines.write("deaf.py", "import os, signal, sys, time\nfor number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nif os.fork() == 0:\n    os.setsid()\n    os.fork()\nos.write(1, b'up\\n')\nwhile True: time.sleep(100)\n");
    let script = "
for how in [signal.SIGKILL, None]:
    dsh = start('python3', 'deaf.py')
    assert [dsh.stdout.readline() for _ in range(3)] == [b'up\\n'] * 3
    # A second caller on the same connection between the nodes is not concerned.
    other = start('cat', stdin=subprocess.PIPE)
    if how:
        dsh.send_signal(how)
        print(dsh.wait())
    else:
        # Told to end, it does not, as here; told by nobody any more, it does.
        dsh.terminate()
        time.sleep(0.5)
        print(dsh.poll())
        dsh.kill()
    began = time.monotonic()
    def left():
        script = 'cat /proc/[0-9]*/cmdline | tr \"\\\\0\" \" \" | grep -ao \"[d]eaf.py\" | wc -l'
        return int(subprocess.run(['dsh', '--node', 'n2', 'sh', '-c', script], stdout=subprocess.PIPE).stdout)
    soon('nothing to be left', lambda: left() == 0)
    took = time.monotonic() - began
    if took > 8:
        print('left for', took)
    other.communicate(b'')
    print(other.returncode)
# On several nodes, each has a caller of its own.
for number, options in enumerate([['--all'], ['--nodes', 'n1,n2']]):
    seconds = str(43210 + number)
    dsh = subprocess.Popen(['dsh', *options, 'sleep', seconds])
    atexit.register(dsh.kill)
    def sleeping():
        script = 'cat /proc/[0-9]*/cmdline | tr \"\\\\0\" \" \" | grep -ao \"slee[p] ' + seconds + '\" | wc -l'
        return int(subprocess.run(['dsh', '--node', 'n2', 'sh', '-c', script], stdout=subprocess.PIPE).stdout)
    soon('the command to run', lambda: sleeping() > 0)
    dsh.kill()
    print(dsh.wait())
    soon('nothing to be left', lambda: sleeping() == 0)
";
    assert_eq!(machines.python(0, &format!("{COMMON}{script}")), ["-9", "0", "None", "0", "-9", "-9"]);
}
