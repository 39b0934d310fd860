// Loaded first (LD_PRELOAD) it counts what a process and its children write below a folder, or ask a store
// to write, and ends their process group before the write with a given number: tests/experiments/writers.py.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
static int *count;
__attribute__((constructor)) static void start(void) {
  int (*open_)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
  count = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open_(getenv("WRITES_COUNTED"), O_RDWR), 0);
}
static void tick(void) {
  if (__sync_add_and_fetch(count, 1) == atoi(getenv("WRITES_KILL_AT"))) for (;;) kill(0, SIGKILL);
}
static void name(const char *path) {
  const char *below = getenv("WRITES_BELOW");
  if (path && !strncmp(path, below, strlen(below))) tick();
}
static void sent(const char *b, size_t n) {
  if (n > 9 && (!memcmp(b, "PUT /", 5) || !memcmp(b, "POST /", 6) || !memcmp(b, "DELETE /", 8))) tick();
}
#define REAL(f) static __typeof__(f) *real; if (!real) real = dlsym(RTLD_NEXT, #f)
#define OPEN(f, args, path, ...) int f args { REAL(f); va_list v; va_start(v, flags); int mode = va_arg(v, int); \
  va_end(v); if (flags & O_CREAT) name(path); return real(__VA_ARGS__, flags, mode); }
OPEN(open, (const char *p, int flags, ...), p, p)
OPEN(open64, (const char *p, int flags, ...), p, p)
OPEN(openat, (int d, const char *p, int flags, ...), p, d, p)
OPEN(openat64, (int d, const char *p, int flags, ...), p, d, p)
int rename(const char *a, const char *b) { REAL(rename); name(b); return real(a, b); }
int link(const char *a, const char *b) { REAL(link); name(b); return real(a, b); }
int linkat(int c, const char *a, int d, const char *b, int f) { REAL(linkat); name(b); return real(c, a, d, b, f); }
ssize_t write(int fd, const void *b, size_t n) { REAL(write); sent(b, n); return real(fd, b, n); }
ssize_t send(int fd, const void *b, size_t n, int f) { REAL(send); sent(b, n); return real(fd, b, n, f); }
ssize_t writev(int fd, const struct iovec *v, int n) {
  REAL(writev); if (n) sent(v->iov_base, v->iov_len); return real(fd, v, n); }
