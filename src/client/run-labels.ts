interface INamed {
  readonly id: string;
  readonly name: string;
  /** Seconds since the epoch. */
  readonly started: number;
}

/** From short to long: the first one by which runs of one name differ is used. */
const MINUTE = {
  day: 'numeric',
  month: 'short',
  hour: '2-digit',
  minute: '2-digit',
  hourCycle: 'h23'
} as const;
const FORMATS: readonly Intl.DateTimeFormatOptions[] = [
  MINUTE,
  { ...MINUTE, second: '2-digit' },
  { ...MINUTE, second: '2-digit', year: 'numeric' }
];

export function startText(
  { started }: Pick<INamed, 'started'>,
  format: Intl.DateTimeFormatOptions = MINUTE
): string {
  return new Date(started * 1000).toLocaleString(undefined, format);
}

/**
 * Tell runs of one name apart: by when they began, or by their id where that is the same.
 * @returns What to put beside the name, by id; nothing for a run whose name no other one has.
 */
export function toldApart(runs: readonly INamed[]): ReadonlyMap<string, string> {
  const named = new Map<string, INamed[]>();
  for (const run of runs) {
    named.set(run.name, [...(named.get(run.name) ?? []), run]);
  }
  const found = new Map<string, string>();
  for (const same of named.values()) {
    if (same.length > 1) {
      const format = FORMATS.find(
        each => new Set(same.map(run => startText(run, each))).size === same.length
      );
      same.forEach(run => found.set(run.id, format === undefined ? run.id : startText(run, format)));
    }
  }
  return found;
}

/** A run's name, and what tells it from others of that name. */
export function runLabel(run: { readonly name: string; readonly apart?: string }): string {
  return run.apart === undefined ? run.name : `${run.name} · ${run.apart}`;
}
