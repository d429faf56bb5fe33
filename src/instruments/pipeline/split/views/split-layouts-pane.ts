import { formatBytes, formatInteger, timeWords } from '../../../../charts';
import type { IMark, Loaded } from '../../../../views/shared/content';
import { emptyState } from '../../../../views/shared/states';
import type { ISplitPlanned } from '../plan/planned-split';
import { splitLanes } from './split-lanes';
import { SplitPane, deviceWords, layoutWords } from './split-pane';
import type { ISplitRead } from './split-reader';

/** The best layout of each family under one another on one axis of time, the fastest first. */
export class SplitLayoutsPane extends SplitPane {
  override readonly subject = this.t('Layouts');

  protected show(read: ISplitRead): Loaded {
    const { env, options, t } = this;
    const there = read.plan.layouts.flatMap(each => ('refused' in each || each === read.run ? [] : [each]));
    this._shown = [...there].sort((a, b) => a.stepMs - b.stepMs);
    const [first, last] = [this._shown[0], this._shown.at(-1)];
    const refused = read.plan.layouts.flatMap(each => ('refused' in each ? [each.refused.message] : []));
    if (!first || !last) {
      return {
        state: emptyState(refused[0] ?? '', t('Take the limits of memory away'), () =>
          this.choose({ memory_gb: null, others_memory_gb: null })
        )
      };
    }
    return {
      content: {
        title: t('%1 layouts side by side', formatInteger(this._shown.length)),
        caption: [
          t('Each is the best of its family on these devices; any device may be left out.'),
          ...refused
        ],
        summary: t(
          '%1 is the fastest with %2, %3 the slowest with %4.',
          layoutWords(first, t),
          timeWords(first.stepMs),
          layoutWords(last, t),
          timeWords(last.stepMs)
        ),
        ...this.gantt.draw({
          groups: this._shown.map(each => ({
            ...splitLanes(each, null, t),
            heading: this._heading(read, each)
          })),
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

  /** The layout of the lane is shown. */
  override clicked(mark: IMark): void {
    const family = this._shown[this.gantt.groupOf(mark)]?.layout.family;
    if (family !== undefined) {
      this.choose({ layout: family });
    }
  }

  private _heading({ what }: ISplitRead, planned: ISplitPlanned): string {
    const { t } = this;
    const peak = Math.max(...planned.peakBytes);
    return [
      layoutWords(planned, t),
      t('%1 a step', timeWords(planned.stepMs)),
      deviceWords(planned.devices, what.request),
      ...(peak > 0 ? [formatBytes(peak)] : [])
    ].join(' · ');
  }

  private _shown: readonly ISplitPlanned[] = [];
}
