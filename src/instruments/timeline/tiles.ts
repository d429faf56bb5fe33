import { translatedLater } from '../../protocol/texts';
import { COLORS, ColorScale, formatInteger, formatNumber, timeWords } from '../../charts';
import type { ConfigPatch } from '../../protocol/messages.generated';
import { takesChanges, type IRunSource } from '../../store/source';
import type { ITiles, IFound, INews } from '../../views/overview/tiles';
import { WordsTile, type ISaid } from '../../views/overview/words-tile';
import type { IBriefBar } from '../../views/shared/content';
import { emptyState, snippetState, type IState } from '../../views/shared/states';
import { loadSentences, said } from '../../views/shared/said';
import type { Translate } from '../../views/shared/translate';
import type { IViewEnvironment } from '../../views/shared/view-model';
import { SNIPPET, TIMELINE, type ITimelineAnswer, type IPiece } from './client/timeline-api';
import { own } from '../../protocol/records';
import { kindColor } from '../../views/shared/span-kinds';
import type { IReportPart } from '../../report/report-part';

/** What a report shows of the spans of a run. */
export async function lookForReport(run: IRunSource): Promise<IReportPart> {
  const timeline = await run
    .asker?.(TIMELINE)?.({ ranks: '0', columns: 1 })
    .catch(() => null);
  return { has: { spans: Boolean(timeline) } };
}

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

/** Columns that are asked for: shares of a step need no more. */
const COLUMNS = 400;
/** Most ranks of the strip; of more the slowest of neighbours is drawn. */
const MOST_RANKS = 256;

/** An answer of a run's timeline as it was asked last, shared by tile and news. */
const asked = new WeakMap<
  IRunSource,
  { readonly at: number; readonly answer: Promise<ITimelineAnswer | null> }
>();
/** Within so many ms the same answer is given, since it takes the server longer than a picture. */
const SAME_FOR = 3000;

function ask(source: IRunSource): Promise<ITimelineAnswer | null> {
  const known = asked.get(source);
  if (known && performance.now() - known.at < SAME_FOR) {
    return known.answer;
  }
  // Not the asker's signal: what one gives up the other may still want.
  const answer = Promise.resolve(source.asker?.(TIMELINE)?.({ ranks: 'all', columns: COLUMNS }) ?? null);
  asked.set(source, { at: performance.now(), answer });
  answer.catch(() => asked.delete(source));
  return answer;
}

/** Where the time of a step goes, and of several ranks which are late. */
class StepTile extends WordsTile {
  constructor(source: IRunSource, env: IViewEnvironment) {
    super(source, env, env.t('Where a step’s time goes'), ['spans']);
  }

  protected async read(): Promise<ISaid | IState> {
    const { source, t, actions } = this;
    const answer = await ask(source);
    if (answer === null) {
      if (!takesChanges(source)) {
        return snippetState(t('No spans are recorded. In the training script:'), SNIPPET, actions, t);
      }
      const patch: ConfigPatch = { flags: {}, instruments: { timeline: { granularity: 'phases' } } };
      return emptyState(
        t('No spans are recorded yet. Phases of a step cost a few spans each.'),
        t('Record phases'),
        async () => {
          await source.configure(patch);
          actions.retry();
        }
      );
    }
    if (Number.isNaN(answer.stepMs)) {
      return { brief: { bars: [] }, said: [t('No whole step is recorded.')] };
    }
    const shares = stepShares(answer, this.env.isDark, t);
    const late = rankLateness(answer, MOST_RANKS);
    const took = t(
      'A step takes %1, steps %2 to %3',
      timeWords(answer.stepMs),
      ...answer.chosen.map(formatInteger)
    );
    const sentence = `${took}: ${shares.map(shareWords).join(', ')}.`;
    const bars: IBriefBar[] = [
      {
        name: took,
        isKeyed: true,
        pieces: shares.map(({ name, share, color }) => ({ name, value: percent(share), size: share, color }))
      },
      ...(late.length > 1 ? [lateBar(late, this.env.isDark, t)] : [])
    ];
    return { brief: { bars }, said: [sentence] };
  }
}

const percent = (share: number): string => `${formatNumber(100 * share, 2)} %`;
const shareWords = ({ name, share }: IShare): string => `${name} ${percent(share)}`;

/** Ranks as a strip, coloured by how much longer than the others of their stage they compute. */
function lateBar(
  late: readonly { readonly rank: number; readonly slower: number }[],
  dark: boolean,
  t: Translate
): IBriefBar {
  const most = Math.max(0.05, ...late.map(({ slower }) => Math.abs(slower)).filter(Number.isFinite));
  const scale = new ColorScale([0, most], 'linear', NaN, { dark });
  return {
    name: t('Ranks by lateness'),
    isKeyed: false,
    pieces: late.map(({ rank, slower }) => ({
      name: t('rank %1', formatInteger(rank)),
      value: Number.isNaN(slower)
        ? t('no data')
        : t(slower < 0 ? '%1 shorter than its stage' : '%1 longer than its stage', percent(Math.abs(slower))),
      size: 1,
      color: Number.isNaN(slower) ? COLORS.neutral : scale.colorAt(scale.position(Math.max(0, slower)))
    }))
  };
}

async function look(source: IRunSource, t: Translate): Promise<IFound> {
  const [answer] = await Promise.all([ask(source), loadSentences()]);
  if (answer === null || answer.isDraft) {
    return { news: [], looked: [] };
  }
  const news = answer.culprits.map((each): INews => ({
    step: each.first,
    subject: `${each.kind} ${each.ranks.join()}`,
    tone: 'warning',
    text: said(each.sentence, t),
    opens: {
      view: 'timeline',
      steps: [Math.max(answer.chosen[0], each.first - 1), Math.min(each.last, each.first + 4)]
    }
  }));
  return { news, looked: [answer.ranksThere === 1 ? t('slow steps') : t('slow ranks')] };
}

export const TILES: ITiles = {
  streams: ['spans'],
  look,
  tiles: [
    {
      id: 'time',
      order: 0,
      title: translatedLater('Where a step’s time goes'),
      opens: { view: 'timeline' },
      create: (source, env) => new StepTile(source, env)
    }
  ]
};
