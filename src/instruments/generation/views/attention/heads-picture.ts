import type { ColorScale, IMatrix, IRecipe, IColorLook, IPlace } from '../../../../charts';
import { formatInteger, Pictures } from '../../../../charts';
import type { AttentionOptions } from '../../../../protocol/views.generated';
import type { IPointed } from '../../../../store/run-link';
import type { IContent, IMark, IMoved } from '../../../../views/shared/content';
import { type Control, selectControl } from '../../../../views/shared/control';
import { colorRangeControl, lockedWords, transformControl } from '../../../../views/shared/controls';
import { WHOLE_NUMBERS } from '../../../../views/kits/lines/line-recipe';
import type { ILinkedMarks } from '../../../../views/shared/links';
import {
  around,
  hold,
  moveAmongCells,
  type IGridCell,
  colorStrip,
  lockedRange,
  scaleFromZero
} from '../../../../views/shared/scale';
import type { ITip } from '../../../../views/shared/table';
import type { Translate } from '../../../../views/shared/translate';
import type { IViewEnvironment } from '../../../../views/shared/view-model';
import { attentionPieces } from '../../store/attention-rows';
import { measureText, attentionTitle, mapName, measureNames, textCaption } from './attention-words';
import { type IHeadMeasure, headMeasures } from './attention-maps';
import type { IAttentionPicture, IAttentionDrawing } from './attention-text';

type HeadsRecipeMeasure = Required<AttentionOptions>['measure'];

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

const HEIGHT = { row: 26, least: 120, most: 480 };

function headsOf(
  layers: readonly number[],
  heads: readonly number[],
  measures: readonly IHeadMeasure[],
  compressor: string
): IMeasuredHeads {
  const cells = {
    rows: layers.length,
    columns: heads.length,
    values: Float32Array.from(measures, each => each.value),
    missing: Uint8Array.from(measures, each => (each.queries + each.unfinished === 0 ? 1 : 0))
  };
  return { layers, heads, measures, cells, compressor };
}

function headsRecipe(
  { layers, heads, cells, measures }: IMeasuredHeads,
  scale: ColorScale,
  name: string,
  pictures: Pictures,
  t: Translate
): IRecipe {
  const strip = colorStrip(scale, measures.some(isUnfinished), t);
  const [x, x2, y, y2] = [-0.5, heads.length - 0.5, -0.5, layers.length - 0.5];
  const rowAt = layers.map((_, row) => row);
  return {
    template: 'moment-map',
    texts: { xTitle: t('head'), yTitle: t('layer'), xLabel: WHOLE_NUMBERS, legendTitle: name },
    params: { x0: x, x1: x2, y0: y, y1: y2, rowAt, rowText: layers.map(String), ...strip.params },
    datasets: { pictures: [{ ...pictures.draw(0, cells, scale), x, x2, y, y2 }], legend: strip.rows },
    painted: pictures.painted,
    height: Math.min(HEIGHT.most, Math.max(HEIGHT.least, layers.length * HEIGHT.row))
  };
}

/** Index of the head that the summary names: least entropy, or greatest measure; -1 if none is finite. */
function tellingHead({ measures }: IMeasuredHeads, measure: HeadsRecipeMeasure): number {
  let best = -1;
  measures.forEach(({ value }, at) => {
    const before = measures[best]?.value ?? NaN;
    const better = Number.isNaN(before) || (measure === 'entropy' ? value < before : value > before);
    best = Number.isFinite(value) && better ? at : best;
  });
  return best;
}

/** Say which head stands out. */
function headsSummary(shown: IMeasuredHeads, measure: HeadsRecipeMeasure, t: Translate): string {
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
function boundCaption({ measures }: IMeasuredHeads, measure: HeadsRecipeMeasure, t: Translate): string[] {
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

const isUnfinished = ({ queries, unfinished }: IHeadMeasure): boolean => queries === 0 && unfinished > 0;

type Measure = Required<AttentionOptions>['measure'];

const MEASURES: readonly Measure[] = ['entropy', 'distance', 'first'];

/** Layer × head, coloured by what distinguishes a head. */
export class HeadsPicture implements IAttentionPicture {
  constructor(
    private readonly _env: IViewEnvironment<AttentionOptions>,
    private readonly _open: (layer: number, head: number) => void
  ) {}

  draw(request: IAttentionDrawing): IContent {
    const { text, layers, heads } = request;
    const { options, t, isDark } = this._env;
    const { measure, transform, color_range: locked } = options;
    const shown = measured(request, measure);
    this._shown = shown;
    this._request = request;
    const range = lockedRange(locked ?? []);
    const recipeOf = (pictures: Pictures, look: IColorLook): IRecipe =>
      headsRecipe(
        shown,
        scaleFromZero([shown.cells.values], transform, look),
        measureNames(t)[measure],
        pictures,
        t
      );
    this._domain = scaleFromZero([shown.cells.values], transform, { range }).domain;
    return {
      recipe: recipeOf(this._pictures, { dark: isDark, range }),
      extent: { x: [-0.5, heads.length - 0.5], y: [-0.5, layers.length - 0.5] },
      title: t('%1: %2', attentionTitle(text, layers, heads, t), measureNames(t)[measure]),
      caption: [
        ...textCaption(text, shown.compressor, request.step, t),
        ...boundCaption(shown, measure, t),
        ...lockedWords(locked, [shown.cells.values], t)
      ],
      summary: [...lostQueries(shown, t), headsSummary(shown, measure, t)].join(' ')
    };
  }

  controls(): Control[] {
    const { options, t, choose } = this._env;
    return [
      selectControl('measure', t('Colour by'), options.measure, measureNames(t), measure =>
        choose({ measure, color_range: null })
      ),
      transformControl(t('Colours'), options.transform, transform => choose({ transform }), t),
      ...colorRangeControl(
        options.color_range,
        this._domain,
        choose,
        () => (this._shown ? [this._shown.cells.values] : []),
        t
      )
    ];
  }

  probe({ x, y }: IPlace): IMark | null {
    if (!this._shown) {
      return null;
    }
    const { columns, rows } = this._shown.cells;
    this._at = { column: hold(Math.round(x), columns), row: hold(Math.round(y), rows) };
    return this._mark();
  }

  tipOf(mark: IMark): ITip | null {
    const found = this._headOf(mark);
    const request = this._request;
    if (!found || !request) {
      return null;
    }
    const { text } = request;
    const { t } = this._env;
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

  move(key: string): IMoved | null {
    const cell = this._shown && moveAmongCells(key === 'Enter' ? 'copy' : key, this._at, this._shown.cells);
    if (!cell) {
      return null;
    }
    this._at = cell;
    const mark = this._mark();
    const found = this._headOf(mark);
    if (!found) {
      return null;
    }
    const { t, options } = this._env;
    this._env.zoom?.reveal(this._at.column, this._at.row);
    const value = this._text(options.measure, found.measured);
    const sentence = t('%1: %2', mapName(found, t), value);
    if (key === 'Enter') {
      this.clicked(mark);
    }
    return key === 'copy' ? { said: sentence, mark, copy: value } : { said: sentence, mark };
  }

  clicked(mark: IMark): void {
    const found = this._headOf(mark);
    if (found) {
      this._open(found.layer, found.head);
    }
  }

  insight(): IMark | null {
    const shown = this._shown;
    const index = shown ? tellingHead(shown, this._env.options.measure) : -1;
    if (!shown || index < 0) {
      return null;
    }
    const { columns } = shown.cells;
    this._at = { column: index % columns, row: Math.floor(index / columns) };
    return this._mark();
  }

  pointedBy(mark: IMark): IPointed {
    return { layer: this._headOf(mark)?.layer ?? null, step: null };
  }

  marksOf({ layer }: IPointed): ILinkedMarks {
    const row = this._request?.layers.indexOf(layer ?? NaN) ?? -1;
    const columns = this._shown?.cells.columns ?? 0;
    return { marks: row < 0 ? [] : [{ facet: null, x: [-0.5, columns - 0.5], y: around(row) }] };
  }

  private _mark(): IMark {
    const { column, row } = this._at ?? { column: 0, row: 0 };
    return { facet: null, x: around(column), y: around(row) };
  }

  private _headOf({ x, y }: IMark): { layer: number; head: number; measured: IHeadMeasure } | null {
    const [column, row] = [x[0] + 0.5, (y?.[0] ?? NaN) + 0.5];
    const [layer, head] = [this._request?.layers[row], this._request?.heads[column]];
    const found = this._shown?.measures[row * this._shown.cells.columns + column];
    return layer === undefined || head === undefined || !found ? null : { layer, head, measured: found };
  }

  private _text(
    measure: Measure,
    { value = NaN, queries = 0, isBound = false }: Partial<IHeadMeasure> = {}
  ): string {
    const { t } = this._env;
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
  private _domain: readonly [number, number] | null = null;
  private _at: IGridCell | null = null;
  private readonly _pictures = new Pictures();
}

/** Measure every head that is wanted. */
function measured({ text, layers, heads }: IAttentionDrawing, measure: Measure): IMeasuredHeads {
  const pieces = layers.map(layer => attentionPieces(text.read, layer, text.sequence));
  const measures = pieces.flatMap(each => {
    const all = headMeasures(each, measure);
    return heads.map(head => all[head] ?? { value: NaN, queries: 0, unfinished: 0, isBound: false });
  });
  return headsOf(layers, heads, measures, pieces.flat().at(-1)?.row.compressor ?? '');
}
