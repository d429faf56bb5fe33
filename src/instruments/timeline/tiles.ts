import { COLORS, ColorScale, formatInteger, formatNumber, timeWords } from '../../charts';
import type { ConfigPatch } from '../../protocol/messages.generated';
import { takesChanges, type IRunSource } from '../../store/source';
import type { ITiles, IFound, INews } from '../../views/overview/tiles';
import { WordsTile, type ISaid } from '../../views/overview/words-tile';
import type { IBriefBar } from '../../views/shared/content';
import { emptyState, snippetState, type IState } from '../../views/shared/states';
import type { Translate } from '../../views/shared/translate';
import type { IViewEnvironment } from '../../views/shared/view-model';
import { stepShares, rankLateness, type IShare } from './client/step-shares';
import { SNIPPET, TIMELINE, type ITimelineAnswer } from './client/timeline-api';

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
  const answer = await ask(source);
  if (answer === null || answer.isDraft) {
    return { news: [], looked: [] };
  }
  const news = answer.culprits.map((each): INews => ({
    step: each.first,
    subject: `${each.kind} ${each.ranks.join()}`,
    tone: 'warning',
    text: each.sentence,
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
      title: 'Where a step’s time goes',
      opens: { view: 'timeline' },
      create: (source, env) => new StepTile(source, env)
    }
  ]
};
