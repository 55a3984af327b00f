// PID 1 of a slot: for each request make one job in fresh namespaces, wait for its end, say so; nothing else.
//
// It holds capabilities only in nsjail's own user namespace and is not dumpable. It never touches what a program made:
// a job's mounts, IPC and processes live in namespaces that end with the job. It ends with its parent.
// A job's network namespace is the keeper's own. Making one is a fifth of a short job's cost, and all that can ever change in one
// goes through a socket: it serves the next job if and only if the job ended by itself and asked for no socket at all. A job
// WITH_OWN_NETWORK has one of its own and is not watched.
#include "keeper.h"
#include <errno.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRESH = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS, FILTER_MAX = 4096 };

struct page *page;
struct sock_fprog filter;
static struct sock_filter instructions[FILTER_MAX];
static char telling[FILTER_MAX];  // which of them answer that we are to be told
static char text[TEXT_MAX];
static int unused;  // whether our network namespace is as it was made

static void tell(uint32_t kind, uint32_t number, int status) {
    struct notice notice = {kind, number, status};
    if (send(CONTROL, &notice, sizeof notice, MSG_NOSIGNAL) != sizeof notice) _exit(EXIT_FAILURE);
}

// Receive one request with its descriptors. False when it makes no sense; ends when the supervisor is gone.
static int receive(struct job *job) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof job->fds)];
    } box;
    struct iovec parts[] = {{&job->head, sizeof job->head}, {text, sizeof text}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_control = &box, .msg_controllen = sizeof box};
    ssize_t size;
    while ((size = recvmsg(CONTROL, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {}
    if (size <= 0) _exit(EXIT_SUCCESS);
    job->count = 0;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
        job->count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(job->fds, CMSG_DATA(rights), job->count * sizeof(int));
    }
    job->text = text;
    uint32_t flags = job->head.flags;
    int want = 3 + !!(flags & WITH_REPORT) + !!(flags & WITH_FILE) + (int)job->head.procs;
    uint64_t inside = flags & WITH_FILE ? 0 : job->head.text_bytes;
    return !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && size == (ssize_t)(sizeof job->head + inside) &&
           job->head.magic == MAGIC && job->head.procs <= FDS_MAX && job->count == want;
}

// A new network namespace with its loopback up. Returns the name of a step that failed, with errno, or NULL.
static const char *renew_network(void) {
    if (unshare(CLONE_NEWNET)) return "network";
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return "lo";
    int failed = ioctl(fd, SIOCSIFFLAGS, &lo), error = errno;
    close(fd);
    errno = error;
    unused = !failed;
    return failed ? "lo" : NULL;
}

// Make the job and wait until its init is reaped; returns its wait status, or -1 when there was none.
static int make(struct job *job) {
    int status = -1;
    int own = !!(job->head.flags & WITH_OWN_NETWORK);
    const char *failed = unused && !own ? NULL : renew_network();
    unused = 0;
    // Where nobody listens, what would be told of is simply allowed.
    for (int i = 0; i < filter.len; i++)
        if (telling[i]) instructions[i].k = own ? SECCOMP_RET_ALLOW : SECCOMP_RET_USER_NOTIF;
    struct clone_args how = {.flags = FRESH, .exit_signal = SIGCHLD};
    pid_t init = failed ? -1 : (pid_t)syscall(SYS_clone3, &how, sizeof how);
    if (init == 0) run_job(job);
    if (init < 0) {
        page->error = errno;
        strcpy(page->step, failed ? failed : "clone3");
    }
    for (int i = 0; i < job->count; i++) close(job->fds[i]);
    if (init < 0) return status;
    while (waitpid(init, &status, 0) != init && errno == EINTR) {}
    unused = status == 0 && page->end_ns && !page->sockets && !own;
    return status;
}

int main(void) {
    static struct job job;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || prctl(PR_SET_DUMPABLE, 0)) return 1;
    ssize_t size = read(FILTER, instructions, sizeof instructions);
    if (size <= 0 || size == sizeof instructions || size % sizeof *instructions) return 2;
    filter = (struct sock_fprog){size / sizeof *instructions, instructions};
    for (int i = 0; i < filter.len; i++)
        telling[i] = instructions[i].code == (BPF_RET | BPF_K) && instructions[i].k == SECCOMP_RET_USER_NOTIF;
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, PAGE, 0);
    if (page == MAP_FAILED) return 3;
    if (syscall(SYS_close_range, PAGE, ~0U, 0)) return 4;
    // By raw calls: the C library keeps two signals to itself, and a parent may have left them ignored.
    uint64_t plain[4] = {0};
    for (int s = 1; s < NSIG; s++) syscall(SYS_rt_sigaction, s, plain, NULL, sizeof(uint64_t));
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    tell(READY, 0, 0);
    for (;;) {
        int status = -1;
        if (receive(&job)) {
            status = make(&job);
        } else {
            for (int i = 0; i < job.count; i++) close(job.fds[i]);
            page->error = EBADMSG;
            strcpy(page->step, "request");
        }
        tell(DONE, job.head.number, status);
    }
}
