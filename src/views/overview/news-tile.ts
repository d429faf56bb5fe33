import { readScalars } from '../../aggregate';
import { formatInteger, formatNumber } from '../../charts';
import { courseOf } from '../shared/course';
import { flagWords } from '../shared/describe';
import { layerWords } from '../shared/layers';
import type { ViewOptions } from '../../protocol/views.generated';
import type { IRunSource, SourceChange } from '../../store/source';
import type { IState } from '../shared/states';
import type { Translate } from '../shared/translate';
import type { IViewEnvironment } from '../shared/view-model';
import { nonFiniteView } from './non-finite-view';
import type { IFound, INews, ITilePage, ITiles } from './tiles';
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
    const looks = [lookAtCourse, ...this._added.flatMap(({ look }) => look ?? [])];
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

/** The newest news, one of each subject at a step; graver ones of a step come first. */
export function newest(found: readonly IFound[]): INews[] {
  const known = new Map<string, INews>();
  for (const each of found.flatMap(({ news }) => news)) {
    const key = `${each.step} ${each.subject}`;
    const before = known.get(key);
    // What a rule found says more than the course of a line.
    known.set(key, before === undefined || before.tone === 'warning' ? each : before);
  }
  return [...known.values()]
    .sort((a, b) => b.step - a.step || Number(b.tone === 'critical') - Number(a.tone === 'critical'))
    .slice(0, MOST_NEWS);
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
              subject: name,
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
  return {
    news: [...news, ...nonFiniteNews(source, t)],
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
function nonFiniteNews({ status, hello }: IRunSource, t: Translate): INews[] {
  const { first, moments } = status?.nonfinite ?? {};
  const [ofTensors, ofStatistics] = [nonFiniteView(status, 'tensors'), nonFiniteView(status, 'moments')];
  return [
    ...(first && ofTensors
      ? [
          {
            step: first.step,
            subject: first.flag,
            tone: 'critical' as const,
            text: t(
              '%1 of %2: the first value that is not finite',
              flagWords(hello, first.flag, null, t),
              layerWords([first.layer])
            ),
            opens: ofTensors
          }
        ]
      : []),
    ...(moments && ofStatistics
      ? [
          {
            step: moments.first.step,
            subject: moments.first.name,
            tone: 'critical' as const,
            text: t('%1: the first statistic that is not finite', moments.first.name),
            opens: ofStatistics
          }
        ]
      : [])
  ];
}
