interface ISpan {
  readonly kind: string;
  readonly begin: number;
  readonly end: number;
}

/** A span, or the sum of several that are narrower than a pixel. */
export type Joined<S extends ISpan> = S & {
  /** How many spans it is. */
  readonly count: number;
};

/** A span so many times as long as the others of its lane gives its pixel its kind. */
const TELLING = 10;

/**
 * Put spans of a lane together that are narrower than a pixel: one a pixel, of the kind that fills most of
 * it, or of a span far longer than the others.
 *
 * @param spans - By their beginnings.
 * @param window - What is seen of the axis. What lies outside is left out.
 * @param pixel - How much of the axis is a pixel.
 */
export function joinNarrow<S extends ISpan>(
  spans: readonly S[],
  [from, to]: readonly [number, number],
  pixel: number
): Joined<S>[] {
  const pieces: Joined<S>[] = [];
  const usual = spans.reduce((sum, each) => sum + lengthOf(each), 0) / spans.length;
  let [column, gathered]: [number, S[]] = [NaN, []];
  const flush = (): void => {
    const [first, ...others] = gathered;
    if (first) {
      const end = others.reduce((last, each) => Math.max(last, each.end), first.end);
      pieces.push({
        ...(others.length === 0 ? first : { ...telling(gathered, usual), begin: first.begin, end }),
        count: gathered.length
      });
    }
    [column, gathered] = [NaN, []];
  };
  for (const each of spans) {
    if (each.end < from || each.begin > to) {
      continue;
    }
    if (lengthOf(each) >= pixel) {
      flush();
      pieces.push({ ...each, count: 1 });
      continue;
    }
    const at = Math.floor(each.begin / pixel);
    if (column !== at) {
      flush();
      column = at;
    }
    gathered.push(each);
  }
  flush();
  return pieces;
}

const lengthOf = ({ begin, end }: ISpan): number => end - begin;

/** What a pixel shows of several spans. */
function telling<S extends ISpan>(spans: readonly S[], usual: number): S {
  const longest = spans.reduce((most, each) => (lengthOf(each) > lengthOf(most) ? each : most));
  if (lengthOf(longest) > TELLING * usual) {
    return longest;
  }
  const taken = new Map<string, number>();
  for (const each of spans) {
    taken.set(each.kind, (taken.get(each.kind) ?? 0) + lengthOf(each));
  }
  const [kind] = [...taken].reduce((most, each) => (each[1] > most[1] ? each : most));
  return spans.find(each => each.kind === kind) as S;
}
