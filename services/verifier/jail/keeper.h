// What the keeper (PID 1 of a slot) and the first process of a job share with the supervisor (config.py, launcher.py).
#define _GNU_SOURCE
#include <linux/filter.h>
#include <stdint.h>
#include <sys/types.h>

// Descriptors that nsjail passes to the keeper, and the one on which a program may report.
enum { CONTROL = 3, HOLD = 4, PAGE = 5, FILTER = 6, REPORT = 9, SPARE = 64 };
// Inside ids: the keeper, the program, and the job's own init, which the program can therefore neither signal nor limit.
enum { ROOT_ID = 0, PROGRAM_ID = 1000, INIT_ID = 1001 };
// The real user and the group that a program with a report begins in, beside PROGRAM_ID: while it is in them, no process that
// has left them can signal it, trace it or see it in /proc, and it does all that to them.
enum { REPORTER_ID = 1002 };
enum { MAGIC = 0x544a4f42, READY = 1, DONE = 2, TEXT_MAX = 1 << 16, FDS_MAX = 16 };
// WITH_LATE, beside WITH_REPORT: the program itself gives up new privileges, once it is started (config.py, `request`).
enum { WITH_REPORT = 1, WITH_LISTENER = 2, WITH_FILE = 4, WITH_OWN_NETWORK = 8, WITH_LATE = 16 };

// One request: this, then argc + envc strings, each closed by NUL (in a memory file when they are long), and in the
// same message the descriptors: stdin, stdout, stderr, report if any, memory file if any, cgroup.procs files.
struct request {
    uint32_t magic, number, argc, envc, flags, procs;
    uint64_t cpu_s, file_bytes, open_files, disk_bytes, inodes, text_bytes;
};

// Keeper to supervisor: READY once; DONE when the init of job `number` is reaped, with its wait status.
struct notice {
    uint32_t kind, number;
    int32_t status;
};

// Shared memory, cleared by the supervisor before each job. Times are CLOCK_MONOTONIC in nanoseconds.
struct page {
    uint32_t number;
    int32_t error;      // errno of a failed step of the set-up, and its name
    char step[24];
    int64_t start_ns, end_ns;
    int32_t status;     // the program's wait status, valid when end_ns is set
    int32_t exec_error; // errno when the program could not be started
    int32_t sockets;    // whether a socket was ever asked for in the job
    int32_t disturbed;  // whether such a call may have failed because we are told of it
};

struct job {
    struct request head;
    char *text;
    int fds[FDS_MAX], count;
};

extern struct page *page;
extern struct sock_fprog filter;
_Noreturn void run_job(struct job *job);
