import { formatInteger } from '../../charts';
import { ReadOnce } from '../../store/read-once';
import type { IRunSource } from '../../store/source';
import { NOT_FINITE, type IFound, type INews, type ITiles } from '../../views/overview/tiles';
import type { Translate } from '../../views/shared/translate';
import { isMuted, monitorSettings, mutesOf, readAlarms, type IAlarm } from './store/alarms';
import { alarmWords } from './views/health-facts';

/** Alarms of a rule that lie at most so many steps apart are one episode. */
const APART = 20;

type AlarmReader = ReadOnce<[IRunSource], readonly IAlarm[]>;

const readers = new WeakMap<IRunSource, AlarmReader>();

/** The reader of a run's alarms, which reads them once and again when there are more. */
function readerOf(source: IRunSource): AlarmReader {
  const known = readers.get(source);
  if (known) {
    return known;
  }
  const reader: AlarmReader = new ReadOnce(of => readAlarms(of));
  readers.set(source, reader);
  source.changed.connect((_, change) => {
    if (change.kind === 'hello' || (change.kind === 'rows' && change.stream === 'alarms')) {
      reader.renew();
    }
  });
  return reader;
}

async function look(source: IRunSource, t: Translate): Promise<IFound> {
  const mutes = mutesOf(monitorSettings(source));
  const alarms = await readerOf(source).read(source);
  const told = alarms.filter(each => each.severity !== 'note' && !isMuted(each, mutes));
  const isJudged = monitorSettings(source) !== undefined || alarms.length > 0;
  return {
    news: episodesOf(told).map(each => newsOf(each, t)),
    looked: isJudged ? [t('alarms')] : []
  };
}

/** Of each rule the alarms that came last without a break, in their order. */
export function episodesOf(alarms: readonly IAlarm[]): IAlarm[][] {
  const episodes = new Map<string, IAlarm[]>();
  for (const alarm of alarms) {
    const before = episodes.get(alarm.rule);
    const goesOn = before !== undefined && alarm.step - (before.at(-1)?.step ?? 0) <= APART;
    if (goesOn) {
      before.push(alarm);
    } else {
      episodes.set(alarm.rule, [alarm]);
    }
  }
  return [...episodes.values()];
}

/** An episode by its first alarm: what came after it mostly follows from it. */
function newsOf(episode: readonly IAlarm[], t: Translate): INews {
  const { name, rule, step, value } = episode[0] as IAlarm;
  const [more, last] = [episode.length - 1, episode.at(-1)?.step ?? step];
  const words = alarmWords(episode[0] as IAlarm, t).replace(/\.$/, '');
  const others =
    last === step
      ? t('%1; %2 more at this step', words, formatInteger(more))
      : t('%1; %2 more up to step %3', words, formatInteger(more), formatInteger(last));
  return {
    step,
    subject: Number.isFinite(value) && rule !== 'nonfinite' ? name : NOT_FINITE,
    text: more === 0 ? words : others,
    tone: episode.some(({ severity }) => severity === 'critical') ? 'critical' : 'warning',
    opens: { view: 'health', name, step }
  };
}

export const TILES: ITiles = { streams: ['alarms'], look, tiles: [] };
