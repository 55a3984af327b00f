// Start nsjail inside the slot's cgroups and reap all that it leaves: `launch COUNT PARENT nsjail ARGS...`.
//
// Descriptors 10 .. 10+COUNT-1 are open cgroup.procs files; 8 is the log pipe. A small static program does this
// because the supervisor can then use posix_spawn, nothing of the jail ever runs outside its cgroups, and the jail's
// processes become ours when nsjail is killed: we end when the last one is reaped, and never before.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOG = 8, FIRST = 10, FAILED = 111 };

static void fail(const char *what) {
    dprintf(LOG, "launch: %s: %s\n", what, strerror(errno));
    _exit(FAILED);
}

int main(int argc, char **argv) {
    if (argc < 4) return FAILED;
    int count = atoi(argv[1]);
    char *env[] = {NULL};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || prctl(PR_SET_CHILD_SUBREAPER, 1)) fail("prctl");
    if (getppid() != atoi(argv[2])) return FAILED;  // the supervisor is gone already
    pid_t child = vfork();
    if (child < 0) fail("vfork");
    if (child == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL)) fail("prctl");
        for (int i = 0; i < count; i++)
            if (write(FIRST + i, "0", 1) != 1) fail("cannot join a cgroup");
        syscall(SYS_close_range, FIRST, ~0U, 0);
        execve(argv[3], argv + 3, env);
        fail("cannot start nsjail");
    }
    syscall(SYS_close_range, 0, ~0U, 0);  // the streams end when the jail ends, not when we do
    for (;;)
        if (waitpid(-1, NULL, 0) < 0 && errno == ECHILD) return 0;
}
