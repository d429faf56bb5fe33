import { formatInteger } from '../../../charts';
import type { ConfigPatch } from '../../../protocol/messages.generated';
import type { TimelineOptions } from '../../../protocol/views.generated';
import type { IRunSource } from '../../../store/source';
import {
  emptyState,
  type IState,
  type IStateActions,
  nothingYet,
  retryAction,
  snippetState
} from '../../../views/shared/states';
import type { Translate } from '../../../views/shared/translate';
import { SNIPPET, TIMELINE } from '../client/timeline-api';

/** What a view says of a run without spans, or without those of the chosen steps. */
export async function nothingState(
  source: IRunSource,
  { steps, ranks }: TimelineOptions,
  actions: IStateActions,
  showNewest: () => void,
  t: Translate,
  signal: AbortSignal
): Promise<IState> {
  const others = steps ? await source.asker?.(TIMELINE)?.({ ranks, columns: 1, draft: true }, signal) : null;
  if (others) {
    return emptyState(
      t(
        'Of these steps no spans are recorded; there are spans of steps %1 to %2.',
        ...others.there.map(formatInteger)
      ),
      t('Show the newest steps'),
      showNewest
    );
  }
  if (source.asker?.(TIMELINE) === undefined) {
    return nothingYet(t('The timeline is read from a recording, and here is none.'), actions, t);
  }
  if (source.connection.kind === 'live') {
    const patch: ConfigPatch = { flags: {}, instruments: { timeline: { granularity: 'phases' } } };
    const run = async (): Promise<void> => {
      await source.configure(patch);
      actions.retry();
    };
    return {
      kind: 'empty',
      sentence: t('This run has no recorded spans yet.'),
      action: { label: t('Record phases'), run },
      more: [retryAction(actions, t)]
    };
  }
  return snippetState(t('No spans are recorded. In the training script:'), SNIPPET, actions, t);
}
