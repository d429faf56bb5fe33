/** Return at most so many of some steps, spread evenly, in order, with one of them surely among them. */
export function spread(steps: readonly number[], step: number, count: number): number[] {
  if (steps.length <= count) {
    return [...steps];
  }
  if (count <= 1) {
    return [step];
  }
  const chosen = Array.from({ length: count }, (_, at) => {
    const place = Math.round((at * (steps.length - 1)) / (count - 1));
    return steps[place] ?? step;
  });
  if (!chosen.includes(step)) {
    const distance = chosen.map(each => Math.abs(each - step));
    chosen[distance.indexOf(Math.min(...distance))] = step;
  }
  return [...new Set(chosen)].sort((a, b) => a - b);
}
