import type { ILine } from './line';
import type { IComparedLines } from './lines-view';

/** Lines in panels, one for each unit that is shown, and the units; '' of lines that have none. */
export function byUnit(found: IComparedLines): { readonly drawn: IComparedLines; readonly units: string[] } {
  const unitOf = unitsOf(found.lines);
  const units = [...new Set(found.shown.map(unitOf))];
  const placed = (lines: readonly ILine[]): ILine[] =>
    lines.map(line => ({ ...line, panel: Math.max(0, units.indexOf(unitOf(line))) }));
  const drawn = {
    ...found,
    lines: placed(found.lines),
    shown: placed(found.shown),
    readSteps: async (run: number, steps: readonly [number, number]) =>
      placed(await found.readSteps(run, steps))
  };
  return { drawn, units };
}

/** The units of lines: of a run that tells none of a scalar, the one that other runs tell, if that is one. */
function unitsOf(lines: readonly ILine[]): (line: ILine) => string {
  const told = new Map<string, Set<string>>();
  for (const { key, unit } of lines) {
    if (unit) {
      told.set(key, (told.get(key) ?? new Set()).add(unit));
    }
  }
  return ({ key, unit }) => {
    const [other, ...more] = told.get(key) ?? [];
    return unit ?? (other === undefined || more.length > 0 ? '' : other);
  };
}
