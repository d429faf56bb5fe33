import type { IMatrix } from '../../../../charts';
import { formatInteger } from '../../../../charts';
import type { AttentionOptions } from '../../../../protocol/views.generated';
import type { IContent, IMark } from '../../../../views/shared/content';
import { type Control, selectControl } from '../../../../views/shared/control';
import { colorRangeControl, lockedWords, transformControl } from '../../../../views/shared/controls';
import { WHOLE_NUMBERS } from '../../../../views/kits/lines/line-recipe';
import { MatrixPicture, type ICellWords } from '../../../../views/kits/matrix/matrix-picture';
import { rowPlaces } from '../../../../views/shared/row-places';
import { type IGridCell, lockedRange, scaleFromZero } from '../../../../views/shared/scale';
import type { ITip } from '../../../../views/shared/table';
import type { Translate } from '../../../../views/shared/translate';
import type { IViewEnvironment } from '../../../../views/shared/view-model';
import { attentionPieces } from '../../store/attention-rows';
import { measureText, attentionTitle, mapName, measureNames, textCaption } from './attention-words';
import { type IHeadMeasure, headMeasures } from './attention-maps';
import type { IAttentionPicture, IAttentionDrawing } from './attention-text';

type Measure = Required<AttentionOptions>['measure'];

/** A measure of heads as layer × head. */
interface IMeasuredHeads {
  readonly layers: readonly number[];
  readonly heads: readonly number[];
  /** Row by row, as the cells. */
  readonly measures: readonly IHeadMeasure[];
  /** Missing where a layer has no such head. */
  readonly cells: IMatrix & { readonly values: Float32Array };
  readonly compressor: string;
}

const ROW = { each: 26, least: 120, most: 480 };

/** Index of the head that the summary names: least entropy, or greatest measure; -1 if none is finite. */
function tellingHead({ measures }: IMeasuredHeads, measure: Measure): number {
  let best = -1;
  measures.forEach(({ value }, at) => {
    const before = measures[best]?.value ?? NaN;
    const better = Number.isNaN(before) || (measure === 'entropy' ? value < before : value > before);
    best = Number.isFinite(value) && better ? at : best;
  });
  return best;
}

/** Say which head stands out. */
function headsSummary(shown: IMeasuredHeads, measure: Measure, t: Translate): string {
  const at = tellingHead(shown, measure);
  const found = shown.measures[at];
  if (!found) {
    return t('No head has only finite probabilities.');
  }
  const columns = shown.heads.length;
  const [layer, head] = [shown.layers[Math.floor(at / columns)] ?? 0, shown.heads[at % columns] ?? 0];
  const value = measureText(measure, found.value);
  const sentences = {
    entropy: found.isBound
      ? t(
          'Head %1 of layer %2 may be the most focused: its mean entropy is at least %3 nats.',
          head,
          layer,
          value
        )
      : t('Head %1 of layer %2 is the most focused: its mean entropy is %3 nats.', head, layer, value),
    distance: found.isBound
      ? t('Head %1 of layer %2 looks back by at least %3 tokens on average.', head, layer, value)
      : t('Head %1 of layer %2 looks farthest: %3 tokens back on average.', head, layer, value),
    first: found.isBound
      ? t('Head %1 of layer %2 looks at the first token with up to %3 on average.', head, layer, value)
      : t('Head %1 of layer %2 looks at the first token with %3 on average.', head, layer, value)
  };
  return sentences[measure];
}

/** Say what a measure is where only maxima are known, and what was left out. */
function boundCaption({ measures }: IMeasuredHeads, measure: Measure, t: Translate): string[] {
  const queries = Math.max(0, ...measures.map(each => each.queries));
  const bounds = {
    entropy: t(
      'Only the largest probability of each block was kept: entropies are at least as large as drawn, which is what it leaves possible.'
    ),
    distance: t(
      'Only the largest probability of each block was kept: distances are at least as large as drawn, which is what it leaves possible.'
    ),
    first: t(
      'Only the largest probability of each block was kept: shares are those of the first block’s largest, and at most as large as drawn.'
    )
  };
  return [
    t('Means over %1 queries.', formatInteger(queries)),
    ...(measures.some(each => each.isBound) ? [bounds[measure]] : [])
  ];
}

/** Say how many queries are left out because they are not finite; nothing where all are. */
function lostQueries({ measures }: IMeasuredHeads, t: Translate): string[] {
  const lost = measures.reduce((sum, each) => sum + each.unfinished, 0);
  return lost > 0
    ? [t('Rows of queries that are not finite, left out of the means: %1.', formatInteger(lost))]
    : [];
}

const MEASURES: readonly Measure[] = ['entropy', 'distance', 'first'];

/** Layer × head, coloured by what distinguishes a head. */
export class HeadsPicture extends MatrixPicture implements IAttentionPicture {
  constructor(
    private readonly _of: IViewEnvironment<AttentionOptions>,
    private readonly _open: (layer: number, head: number) => void
  ) {
    super(_of.t, _of);
  }

  draw(request: IAttentionDrawing): IContent {
    const { text, layers, heads } = request;
    const { t, _of: env } = this;
    const { measure, transform, color_range: locked } = env.options;
    const shown = measured(request, measure);
    const { cells } = shown;
    this._shown = shown;
    this._request = request;
    const range = lockedRange(locked ?? []);
    const name = measureNames(t)[measure];
    const picture = this.paint(
      {
        cells,
        scaleOf: dark => scaleFromZero([cells.values], transform, { dark, range }),
        template: 'moment-map',
        texts: { xTitle: t('head'), yTitle: t('layer'), xLabel: WHOLE_NUMBERS, legendTitle: name },
        params: { rowAt: layers.map((_, row) => row), rowText: layers.map(String) },
        height: rowPlaces(layers.length, ROW).height,
        x: [-0.5, heads.length - 0.5]
      },
      env.isDark
    );
    return {
      ...picture,
      title: t('%1: %2', attentionTitle(text, layers, heads, t), name),
      caption: [
        ...textCaption(text, shown.compressor, request.step, t),
        ...boundCaption(shown, measure, t),
        ...lockedWords(locked, [cells.values], t)
      ],
      summary: [...lostQueries(shown, t), headsSummary(shown, measure, t)].join(' ')
    };
  }

  controls(): Control[] {
    const { options, t, choose } = this._of;
    return [
      selectControl('measure', t('Colour by'), options.measure, measureNames(t), measure =>
        choose({ measure, color_range: null })
      ),
      transformControl(t('Colours'), options.transform, transform => choose({ transform }), t),
      ...colorRangeControl(
        options.color_range,
        this.domain,
        choose,
        () => (this._shown ? [this._shown.cells.values] : []),
        t
      )
    ];
  }

  clicked(mark: IMark): void {
    const found = this._headOf(mark);
    if (found) {
      this._open(found.layer, found.head);
    }
  }

  insight(): IMark | null {
    const shown = this._shown;
    const index = shown ? tellingHead(shown, this._of.options.measure) : -1;
    const columns = shown?.heads.length ?? 1;
    return index < 0 ? null : this.show({ column: index % columns, row: Math.floor(index / columns) });
  }

  protected words(cell: IGridCell): ICellWords {
    const found = this._headAt(cell);
    const value = this._text(this._of.options.measure, found?.measured);
    return {
      tip: found && this._tip(found),
      said: found ? this.t('%1: %2', mapName(found, this.t), value) : value,
      value
    };
  }

  private _tip(found: IFoundHead): ITip | null {
    const { t, _request: request } = this;
    if (!request) {
      return null;
    }
    const { text } = request;
    const pieces = attentionPieces(text.read, found.layer, text.sequence);
    const lines = MEASURES.map(measure => {
      const each = headMeasures(pieces, measure)[found.head];
      return { name: measureNames(t)[measure], value: this._text(measure, each) };
    });
    const { unfinished = 0 } = headMeasures(pieces, 'entropy')[found.head] ?? {};
    return {
      heading: mapName(found, t),
      lines: unfinished > 0 ? [...lines, { name: t('queries not finite'), value: String(unfinished) }] : lines
    };
  }

  protected override pressed(mark: IMark): void {
    this.clicked(mark);
  }

  protected override layerOf(row: number): number | null {
    return this._shown?.layers[row] ?? null;
  }

  private _headOf(mark: IMark): IFoundHead | null {
    const cell = this.cellOf(mark);
    return cell && this._headAt(cell);
  }

  private _headAt({ column, row }: IGridCell): IFoundHead | null {
    const { layers = [], heads = [], measures = [] } = this._shown ?? {};
    const [layer, head, found] = [layers[row], heads[column], measures[row * heads.length + column]];
    return layer === undefined || head === undefined || !found ? null : { layer, head, measured: found };
  }

  private _text(
    measure: Measure,
    { value = NaN, queries = 0, isBound = false }: Partial<IHeadMeasure> = {}
  ): string {
    const { t } = this;
    const text = measureText(measure, value);
    return queries === 0
      ? t('nothing finite')
      : !isBound
        ? text
        : measure === 'first'
          ? t('at most %1', text)
          : t('at least %1', text);
  }

  private _shown: IMeasuredHeads | null = null;
  private _request: IAttentionDrawing | null = null;
}

interface IFoundHead {
  readonly layer: number;
  readonly head: number;
  readonly measured: IHeadMeasure;
}

/** Measure every head that is wanted. */
function measured({ text, layers, heads }: IAttentionDrawing, measure: Measure): IMeasuredHeads {
  const pieces = layers.map(layer => attentionPieces(text.read, layer, text.sequence));
  const measures = pieces.flatMap(each => {
    const all = headMeasures(each, measure);
    return heads.map(head => all[head] ?? { value: NaN, queries: 0, unfinished: 0, isBound: false });
  });
  const cells = {
    rows: layers.length,
    columns: heads.length,
    values: Float32Array.from(measures, each => each.value),
    missing: Uint8Array.from(measures, each => (each.queries + each.unfinished === 0 ? 1 : 0))
  };
  return { layers, heads, measures, cells, compressor: pieces.flat().at(-1)?.row.compressor ?? '' };
}
