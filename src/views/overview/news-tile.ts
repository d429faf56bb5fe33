import { readScalars, readTrend } from '../../aggregate';
import { formatInteger, formatNumber } from '../../charts';
import { courseOf } from '../shared/course';
import { flagInfo, flagWords } from '../shared/describe';
import { layerWords } from '../shared/layers';
import type { ViewOptions } from '../../protocol/views.generated';
import type { IRunSource, SourceChange } from '../../store/source';
import type { IState } from '../shared/states';
import type { Translate } from '../shared/translate';
import type { IViewEnvironment } from '../shared/view-model';
import { nonFiniteView } from './non-finite-view';
import { tracedFlags, trendOptions } from './picture-tiles';
import { NOT_FINITE, type IFound, type INews, type ITilePage, type ITiles } from './tiles';
import { WordsTile, type ISaid } from './words-tile';

/** Most sentences. */
const MOST_NEWS = 3;
/** Points of a loss that are looked at: all extremes are among them. */
const POINTS = 2000;

/** What is out of the ordinary, the newest first, each a link to the view that shows it. */
export class NewsTile extends WordsTile {
  constructor(
    source: IRunSource,
    env: IViewEnvironment,
    private readonly _page: ITilePage,
    private readonly _added: readonly ITiles[]
  ) {
    super(source, env, env.t('Out of the ordinary'), ['scalars', ..._added.flatMap(each => each.streams)]);
  }

  override concerns(change: SourceChange): boolean {
    return super.concerns(change) || change.kind === 'status';
  }

  protected async read(signal: AbortSignal): Promise<ISaid | IState> {
    const { source, t, _page: page } = this;
    // What a rule found says more than the course of a line, and comes first.
    const looks = [...this._added.flatMap(({ look }) => look ?? []), lookAtCourse];
    const found = await Promise.allSettled(looks.map(look => look(source, t, signal)));
    signal.throwIfAborted();
    const known = found.flatMap(each => (each.status === 'fulfilled' ? [each.value] : []));
    const failed = found.length - known.length;
    const news = newest(known);
    const lines = news.map(({ step, text, tone, opens }) => {
      const run = page.to(opens, step);
      return { lead: t('step %1', formatInteger(step)), text, tone, ...(run && { run }) };
    });
    const more = known.flatMap(each => each.news).length - news.length;
    const quiet = t(
      'Nothing up to step %1. Looked for: %2.',
      formatInteger(source.status?.step ?? 0),
      known.flatMap(({ looked }) => looked).join(', ')
    );
    const unread = failed > 0 ? [{ text: t('Not all of it could be read.') }] : [];
    return {
      brief: { lines: [...(lines.length === 0 ? [{ text: quiet }] : lines), ...unread] },
      said:
        lines.length === 0
          ? [quiet]
          : [
              ...lines.map(({ lead, text }) => `${capitalOf(lead)}: ${text}`),
              ...(more > 0 ? [t('Earlier ones: %1.', formatInteger(more))] : [])
            ]
    };
  }
}

const capitalOf = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/**
 * The newest news, one of each subject at a step; graver ones of a step come first. The newest that is
 * critical is among them, however many came after it.
 */
export function newest(found: readonly IFound[]): INews[] {
  const known = new Map<string, INews>();
  for (const each of found.flatMap(({ news }) => news)) {
    const key = `${each.step} ${each.subject}`;
    const before = known.get(key);
    const isGraver = before?.tone === 'warning' && each.tone === 'critical';
    known.set(key, before === undefined || isGraver ? each : before);
  }
  const all = [...known.values()].sort(
    (a, b) => b.step - a.step || Number(b.tone === 'critical') - Number(a.tone === 'critical')
  );
  const gravest = all.findIndex(({ tone }) => tone === 'critical');
  return all.filter((_, at) => at === gravest || at < MOST_NEWS - Number(gravest >= MOST_NEWS));
}

/** What values that are not finite, and departures of the loss, say. */
export async function lookAtCourse(source: IRunSource, t: Translate, signal: AbortSignal): Promise<IFound> {
  const { units } = await readScalars(source, { names: [] }, signal);
  const names = Object.keys(units).filter(name => name.includes('loss'));
  const { lines } =
    names.length === 0 ? { lines: [] } : await readScalars(source, { names, points: POINTS }, signal);
  const news = lines.flatMap(({ name, steps, values }): INews[] => {
    const { bad, departure } = courseOf({ steps, values });
    const opens: ViewOptions = { view: 'scalars', names: [name] };
    return [
      ...(bad
        ? [
            {
              step: bad.step,
              subject: NOT_FINITE,
              tone: 'critical' as const,
              text: bad.stays ? t('%1 is not finite from here on', name) : t('%1 is not finite', name),
              opens
            }
          ]
        : []),
      ...(departure
        ? [
            {
              step: departure.peak.step,
              subject: name,
              tone: 'warning' as const,
              text: departureWords(name, departure, t),
              opens
            }
          ]
        : [])
    ];
  });
  const seen = source.status?.nonfinite === undefined ? await badTensors(source, t, signal) : [];
  return {
    news: [...news, ...nonFiniteNews(source, t), ...seen],
    looked: [t('values that are not finite'), ...(names.length > 0 ? [t('sudden changes of the loss')] : [])]
  };
}

/** `loss 8.23, 3.1 × the steps before; back at step 160`. */
function departureWords(
  name: string,
  { from, peak, back }: NonNullable<ReturnType<typeof courseOf>['departure']>,
  t: Translate
): string {
  const ratio = peak.value / from.value;
  const by =
    ratio > 1.1 || (ratio > 0 && ratio < 0.9)
      ? t('%1 × the steps before', formatNumber(ratio, 2))
      : t('%1 before', formatNumber(from.value, 3));
  return t('%1 %2, %3; back at step %4', name, formatNumber(peak.value, 3), by, formatInteger(back.step));
}

/** The first value that was not finite among traced tensors, and among statistics. */
function nonFiniteNews(source: IRunSource, t: Translate): INews[] {
  const { status } = source;
  const { first, moments } = status?.nonfinite ?? {};
  const ofStatistics = nonFiniteView(status, 'moments');
  return [
    ...(first ? [badTensor(source, first.flag, first.step, first.layer, t)] : []),
    ...(moments && ofStatistics
      ? [
          {
            step: moments.first.step,
            subject: NOT_FINITE,
            tone: 'critical' as const,
            text: t('%1: the first statistic that is not finite', moments.first.name),
            opens: ofStatistics
          }
        ]
      : [])
  ];
}

/** Most trace points of a recording that are looked through. */
const MOST_FLAGS = 3;

/** The first values of traced tensors that are not finite, of a run that does not say so itself. */
async function badTensors(source: IRunSource, t: Translate, signal: AbortSignal): Promise<INews[]> {
  const found: INews[] = [];
  for (const flag of tracedFlags(source).slice(0, MOST_FLAGS)) {
    const { phase, pass, rank, statistic } = trendOptions(flag, null);
    const { layers, parts } = await source.shapeOf(flag);
    const axes = flagInfo(source.hello, flag)?.axes ?? [];
    const query = {
      ...{ flag, phase, pass, statistic, layers, rank: rank ?? ('lowest' as const) },
      ...(parts[0] ? { part: parts[0] } : {}),
      selection: { positions: 'all', vector: 0, interval: 'none' as const, axes }
    };
    const { lines } = await readTrend(source, query, signal);
    const bad = lines
      .flatMap(({ layer, steps, nonFinite }) => {
        const step = steps[nonFinite.findIndex(count => count > 0)];
        return step === undefined ? [] : [{ step, layer }];
      })
      .sort((a, b) => a.step - b.step);
    if (bad[0]) {
      const { step, layer } = bad[0];
      found.push(badTensor(source, flag, step, layer, t));
    }
  }
  return found;
}

function badTensor({ hello }: IRunSource, flag: string, step: number, layer: number, t: Translate): INews {
  return {
    step,
    subject: NOT_FINITE,
    tone: 'critical',
    text: t(
      '%1 of %2: the first value that is not finite',
      flagWords(hello, flag, null, t),
      layerWords([layer], t)
    ),
    opens: { view: 'heatmap', flag, layers: String(layer), step }
  };
}
