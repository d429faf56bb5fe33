import { own } from '../../../protocol/records';
import { kindColor } from '../../../views/shared/span-kinds';
import type { Translate } from '../../../views/shared/translate';
import type { IPiece, ITimelineAnswer } from './timeline-api';

/** A part of the time of a step, over all ranks. */
export interface IShare {
  readonly name: string;
  /** 0 to 1. */
  readonly share: number;
  readonly color: string;
}

/** What names of a script's own spans say. */
const OWN: readonly (readonly [RegExp, string])[] = [
  [/eval|valid|held.?out/i, 'evaluation'],
  [/check|save/i, 'checkpoint'],
  [/data|batch|load/i, 'data'],
  [/sample|generat|text/i, 'text'],
  [/garbage/i, 'host']
];
const COMPUTING = ['forward', 'backward', 'wgrad', 'optimizer'];
const WAITING = ['collective', 'send', 'receive'];
/** Shares below this are counted to the host. */
const LEAST = 0.002;

interface ISpan {
  readonly begin: number;
  readonly end: number;
}

const length = ({ begin, end }: ISpan): number => Math.max(0, end - begin);
const overlap = (a: ISpan, b: ISpan): number =>
  Math.max(0, Math.min(a.end, b.end) - Math.max(a.begin, b.begin));

/** Which part a span belongs to: by its kind, and one of the script's own by its name. */
function partOf(kind: string, name: string): string {
  if (COMPUTING.includes(kind)) {
    return 'compute';
  }
  if (WAITING.includes(kind)) {
    return 'communication';
  }
  return kind === 'user' ? (OWN.find(([pattern]) => pattern.test(name))?.[1] ?? 'user') : kind;
}

/**
 * Where the time between the first beginning and the last end of the steps goes, the largest part first. What
 * no span covers is the host's; what a rank is blocked in is taken off its phases.
 */
export function stepShares(
  { pieces, lanes, steps, whole }: ITimelineAnswer,
  isDark: boolean,
  t: Translate
): IShare[] {
  const [from, to] = [steps[0]?.[1] ?? whole[0], steps.at(-1)?.[2] ?? whole[1]];
  const total = (to - from) * lanes.length;
  const parts = new Map<string, number>();
  const add = (part: string, ms: number): void => void parts.set(part, (parts.get(part) ?? 0) + ms);
  const cut = ({ begin, end }: ISpan): ISpan => ({ begin: Math.max(begin, from), end: Math.min(end, to) });
  for (const lane of lanes.keys()) {
    const ofLane = pieces.filter(each => each.lane === lane).sort((a, b) => a.begin - b.begin);
    const phases = ofLane.filter(({ depth }) => depth === 0);
    const blocked = ofLane.filter(({ kind }) => WAITING.includes(kind)).map(cut);
    let first = 0;
    // What a phase lies in, the innermost last: its time is not the outer one's.
    const around: IPiece[] = [];
    for (const phase of phases) {
      const span = cut(phase);
      while ((around.at(-1)?.end ?? Infinity) <= phase.begin) {
        around.pop();
      }
      // What ended before this phase began ends before all later ones, too.
      while ((blocked[first]?.end ?? Infinity) <= span.begin) {
        first += 1;
      }
      let waits = 0;
      for (let at = first; (blocked[at]?.begin ?? Infinity) < span.end; at += 1) {
        waits += overlap(span, blocked[at] as ISpan);
      }
      const own = Math.max(0, length(span) - waits);
      add(partOf(phase.kind, phase.name), own);
      const outer = around.at(-1);
      if (outer) {
        add(partOf(outer.kind, outer.name), -own);
      }
      around.push(phase);
    }
    blocked.forEach(span => add('communication', length(span)));
  }
  add('host', total - [...parts.values()].reduce((sum, ms) => sum + ms, 0));
  const words: Readonly<Record<string, readonly [name: string, kind: string]>> = {
    compute: [t('compute'), 'forward'],
    communication: [t('communication'), 'collective'],
    data: [t('data'), 'data'],
    evaluation: [t('evaluation'), 'wgrad'],
    checkpoint: [t('checkpoint'), 'checkpoint'],
    text: [t('sample text'), 'optimizer'],
    user: [t('your own spans'), 'user'],
    host: [t('host, other'), 'send']
  };
  return [...parts]
    .map(([part, ms]) => {
      const [name, kind] = own(words, part) ?? [part, 'user'];
      return { name, share: Math.max(0, Math.min(1, ms / total)), color: kindColor(kind, isDark) };
    })
    .filter(({ share }) => share >= LEAST)
    .sort((a, b) => b.share - a.share);
}

/** How much longer each rank computes than the ranks of its stage, over the steps; NaN where unknown. */
export function rankLateness(
  { slow }: ITimelineAnswer,
  most: number
): { readonly rank: number; readonly slower: number }[] {
  const all = slow.ranks.map((rank, at) => {
    const known = (slow.values[at] ?? []).filter(Number.isFinite);
    return { rank, slower: known.length === 0 ? NaN : known.reduce((a, b) => a + b, 0) / known.length };
  });
  const every = Math.ceil(all.length / most);
  const groups = Array.from({ length: Math.ceil(all.length / every) }, (_, at) =>
    all.slice(at * every, (at + 1) * every)
  );
  const worse = (value: number): number => (Number.isNaN(value) ? -Infinity : value);
  return groups.flatMap(group =>
    group.length === 0 ? [] : [group.reduce((a, b) => (worse(b.slower) > worse(a.slower) ? b : a))]
  );
}
