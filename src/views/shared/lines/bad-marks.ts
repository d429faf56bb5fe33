import type { ILine } from './line';
import type { IBadStretch } from './line-recipe';

/** Where values of lines are not finite, for each panel. */
export function badOf(lines: readonly ILine[]): IBadStretch[] {
  const panels = [...new Set(lines.map(line => line.panel ?? 0))];
  return panels.flatMap(panel => {
    const counts = new Map<number, number>();
    for (const line of lines.filter(each => (each.panel ?? 0) === panel && !each.isFaint)) {
      line.x.forEach((x, at) => {
        const count = line.nonFinite[at] ?? 0;
        if (count > 0) {
          counts.set(x, (counts.get(x) ?? 0) + count);
        }
      });
    }
    const all = [...counts].sort(([a], [b]) => a - b).map(([x, count]) => ({ x, x2: x, count }));
    return all.map(each => (panel > 0 ? { ...each, panel } : each));
  });
}
