import { COLORS, formatInteger, type IPlotFrame, type IRecipe, type Row } from '../../charts';
import { own } from '../../protocol/records';
import type { IRunEvent } from '../../store/run-events';
import type { IRunSource } from '../../store/source';
import type { IContent } from './content';
import type { IStepAxis } from './links';
import { loadSentences, said } from './said';
import type { Translate } from './translate';

/** Most marks of a strip: more are drawn together with their neighbours of the same kind. */
const MOST_MARKS = 200;

const EVENTS = COLORS.events;
/** How each kind of event is marked: by colour and by shape. */
const LOOKS: Readonly<Record<string, { readonly color: string; readonly shape: string }>> = {
  settings: { color: EVENTS.settings, shape: 'diamond' },
  perturbation: { color: EVENTS.perturbation, shape: 'triangle-up' },
  pause: { color: EVENTS.pause, shape: 'square' },
  resume: { color: EVENTS.resume, shape: 'triangle-right' },
  restart: { color: EVENTS.restart, shape: 'cross' },
  lost: { color: EVENTS.lost, shape: 'square' },
  nonfinite: { color: COLORS.nonfinite[0], shape: 'triangle-down' },
  checkpoint: { color: EVENTS.checkpoint, shape: 'circle' },
  alarm: { color: COLORS.severity.critical, shape: 'triangle-up' }
};
const OTHER = { color: COLORS.neutral, shape: 'circle' };

/** The words of each kind, where several events are drawn as one mark. */
function kindWords(kind: string, t: Translate): string {
  const words: Readonly<Record<string, string>> = {
    settings: t('changes of settings'),
    perturbation: t('perturbations'),
    pause: t('pauses'),
    resume: t('continuations'),
    restart: t('restarts'),
    lost: t('stretches of lost steps'),
    nonfinite: t('places with non-finite values'),
    checkpoint: t('checkpoints'),
    alarm: t('alarms')
  };
  return own(words, kind) ?? kind;
}

/** What happened to a run, by first step. */
export async function eventsOf(source: IRunSource): Promise<readonly IRunEvent[]> {
  // A picture without marks is better than none.
  const [events] = await Promise.all([source.events?.().catch(() => []), loadSentences()]);
  return events ?? [];
}

/** Say an event with its steps: `step 40: Tile(96) → Tile(48), by ada`. */
export function eventWords({ first, kind, last, text: title }: IRunEvent, t: Translate): string {
  // An alarm is named before its sentence.
  const at = kind === 'alarm' ? title.indexOf(': ') + 2 : 0;
  const text = title.slice(0, at) + said(title.slice(at), t);
  const [from, to] = [formatInteger(first), formatInteger(last)];
  return first === last
    ? t('step %1: %2', from, text)
    : last === Infinity
      ? t('from step %1 on: %2', from, text)
      : t('steps %1 to %2: %3', from, to, text);
}

/** Few enough events to draw: neighbours of one kind become one. */
export function fewEvents(events: readonly IRunEvent[], t: Translate): readonly IRunEvent[] {
  if (events.length <= MOST_MARKS) {
    return events;
  }
  const [start, end] = [events[0]?.first ?? 0, events[events.length - 1]?.first ?? 0];
  const kinds = new Set(events.map(each => each.kind)).size;
  const width = ((end - start) * kinds) / MOST_MARKS || 1;
  const groups = new Map<string, IRunEvent[]>();
  for (const event of events) {
    const key = `${event.kind} ${Math.floor((event.first - start) / width)}`;
    groups.set(key, [...(groups.get(key) ?? []), event]);
  }
  return [...groups.values()].flatMap(group => {
    const [one] = group;
    return group.length === 1 || !one
      ? group
      : [
          {
            kind: one.kind,
            first: Math.min(...group.map(each => each.first)),
            last: Math.max(...group.map(each => each.last)),
            text: t('%1 %2', formatInteger(group.length), kindWords(one.kind, t))
          }
        ];
  });
}

/**
 * A content whose pictures have a strip of events under the step axis; as it is where there is no such axis,
 * or nothing happened.
 */
export function withEvents(
  content: IContent,
  events: readonly IRunEvent[],
  axis: IStepAxis | undefined,
  t: Translate
): IContent {
  const { recipe, refit, printed } = content;
  if (!recipe || !axis || events.length === 0) {
    return content;
  }
  const [, newest = 0] = axis.stepsIn(content.extent.x) ?? [];
  const rows = fewEvents(events, t).map((event): Row => {
    const { color, shape } = own(LOOKS, event.kind) ?? OTHER;
    const [from, to] = axis.spanOf([
      event.first,
      // What goes on is marked as far as there are steps.
      Math.max(event.first, Math.min(event.last, newest))
    ]);
    // An event of one step is a point in a map too, where a step is as wide as its cell.
    const [x, x2] = event.first === event.last ? [(from + to) / 2, (from + to) / 2] : [from, to];
    return { step: event.first, x, x2, color, shape, kind: event.kind, text: eventWords(event, t) };
  });
  const add = <R extends IRecipe | null>(each: R): R =>
    each && {
      ...each,
      params: { ...each.params, eventSpace: 11 },
      datasets: { ...each.datasets, events: rows }
    };
  return {
    ...content,
    recipe: add(recipe),
    ...(refit && { refit: (frame: IPlotFrame) => add(refit(frame)) }),
    ...(printed && { printed: (dark?: boolean) => add(printed(dark)) })
  };
}
