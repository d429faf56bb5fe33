import { formatBytes, formatInteger, formatNumber, timeWords } from '../../../../../charts';
import { compareSplit } from '../../plan/compare-split';
import type { ISplitPlanned } from '../../plan/split-planned';
import type { INote, Loaded } from '../../../../../views/shared/content';
import { emptyState } from '../../../../../views/shared/states';
import { isMeasured, splitLanes } from './split-lanes';
import { SplitPane } from './split-pane';
import { drawnOf, type ISplitRead } from './split-reader';
import { splitVerdictNotes } from './split-verdict-notes';
import { deviceWords, layoutWords } from './split-words';

/** What each process does in a step, the last measured step under it, and whether a split is worth it. */
export class SplitPlanPane extends SplitPane {
  protected show(read: ISplitRead, drawn: ISplitPlanned | null): Loaded {
    const { env, options, t } = this;
    if (drawn === null) {
      return { state: this._absent(read) };
    }
    const measured =
      options.measured && read.measured && isMeasured(drawn, read.measured) ? read.measured : null;
    return {
      content: {
        title: t('%1: %2 a step', layoutWords(drawn, t), timeWords(drawn.stepMs)),
        caption: this._caption(read, drawn, measured),
        summary: this._summary(read, drawn),
        notes: this._notes(read, drawn),
        ...this.gantt.draw({
          groups: [splitLanes(drawn, measured, t)],
          chunks: 1,
          hidden: options.hidden,
          width: env.width,
          isDark: env.isDark,
          seen: this.seen,
          hide: hidden => this.choose({ hidden }),
          lanes: t('stage and process')
        })
      }
    };
  }

  private _summary({ what }: ISplitRead, { devices, peakBytes, stepMs }: ISplitPlanned): string {
    const { t } = this;
    const [took, on] = [timeWords(stepMs), deviceWords(devices, what.request)];
    const peak = Math.max(...peakBytes);
    return peak > 0
      ? t('A step takes %1 on %2; the fullest device holds %3.', took, on, formatBytes(peak))
      : t('A step takes %1 on %2.', took, on);
  }

  private _caption(read: ISplitRead, drawn: ISplitPlanned, measured: ISplitRead['measured']): string[] {
    const { t } = this;
    const { layout, lanes, overMemoryBytes, sentBytes } = drawn;
    return [
      ...(layout.data > 1 ? [t('One of %1 replicas, which are alike.', formatInteger(layout.data))] : []),
      ...(lanes.some(({ role }) => role === 'forward')
        ? [
            t(
              'It cannot deadlock: no operation waits for one that comes later in the order of micro-batches.'
            )
          ]
        : []),
      ...(overMemoryBytes > 0
        ? [t('It needs %1 more than the memory of a device.', formatBytes(overMemoryBytes))]
        : []),
      ...(sentBytes > 0 ? [t('%1 are sent in a step.', formatBytes(sentBytes))] : []),
      read.measured === null
        ? t('Times are those set under What if; nothing was measured.')
        : t('Times are the medians of %1 measured steps.', formatInteger(read.measured.steps)),
      ...(read.measured?.isSplit
        ? [
            t(
              'What forward processes would take for other passes was not measured: it is taken from backward processes, by how their forward passes compare.'
            )
          ]
        : []),
      ...(measured ? [this._beside(drawn, measured)] : [])
    ];
  }

  private _beside(drawn: ISplitPlanned, measured: NonNullable<ISplitRead['measured']>): string {
    const { plannedMs, measuredMs, percent } = compareSplit(drawn, measured);
    return this.t(
      'Under each process: step %1 as measured. Steps take %2, %3 planned (%4 %).',
      formatInteger(measured.operationsStep),
      timeWords(measuredMs),
      timeWords(plannedMs),
      `${percent < 0 ? '−' : '+'}${formatNumber(Math.abs(percent), 2)}`
    );
  }

  private _notes(read: ISplitRead, drawn: ISplitPlanned): INote[] {
    return splitVerdictNotes(read, drawn, {
      t: this.t,
      copyCode: () => void this.actions.copyCode(),
      show: layout => this.choose({ layout })
    });
  }

  private _absent(read: ISplitRead): ReturnType<typeof emptyState> {
    const { options, t } = this;
    const found = drawnOf(read, options.layout);
    const sentence =
      found !== null && 'refused' in found
        ? found.refused.message
        : options.layout === 'run'
          ? t('No passes are recorded of these devices and micro-batches.')
          : t('No layout fits in the memory of these devices.');
    return read.plan.best === null
      ? emptyState(sentence, t('Take the limits of memory away'), () =>
          this.choose({ memory_gb: null, others_memory_gb: null })
        )
      : emptyState(sentence, t('Show the best'), () => this.choose({ layout: 'best' }));
  }
}
