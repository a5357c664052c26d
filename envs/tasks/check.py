"""The tests of a generated task: functions whose names begin with test_, between this text and its end."""
import json
import os
import subprocess


def read(name):
    with open(os.path.join("/app", name)) as file:
        return file.read()


def sh(command):
    """Runs a command in /app and gives what it prints."""
    done = subprocess.run(["bash", "-c", command], cwd="/app", capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, "%s: exit status %d: %s" % (command, done.returncode, done.stderr.strip()[-300:])
    return done.stdout.strip()


def same(got, want):
    assert got == want, "got %.200r, expected %.200r" % (got, want)


#TESTS#
tests = {name: test for name, test in list(globals().items()) if name.startswith("test_")}
passed = 0
for name, test in tests.items():
    try:
        test()
    except Exception as problem:
        print("FAILED %s: %s" % (name, problem))
    else:
        passed += 1
        print("PASSED", name)
with open("/logs/verifier/reward.json", "w") as file:
    json.dump({"reward": float(passed == len(tests)), "tests_passed": passed / len(tests)}, file)
