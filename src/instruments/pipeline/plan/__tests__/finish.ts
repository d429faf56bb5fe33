/** Do work that yields between slices at once. */
export function finish<T>(work: Generator<void, T>): T {
  for (;;) {
    const step = work.next();
    if (step.done === true) {
      return step.value;
    }
  }
}
