export { Chart, type IChartOptions } from './chart';
export { ColorScale, type Extent, type Transform } from './color-scale';
export { lowMagnitude } from './decades';
export { ChartError } from './error';
export { followPointer, type IPointerFollower } from './follow-pointer';
export { formatBytes, formatCount, formatFull, formatInteger, formatNumber } from './format';
export { domains, frames, locate, type IFrame, type IPlace, type ISceneView } from './frames';
export { legend, type ILegend, type ILegendWords } from './legend';
export { COLORS, flagColor } from './palette';
export { toPicture, toDataUrl, type IPicture } from './picture';
export { Pictures } from './pictures';
export { paint, type IMatrix, type IPixels } from './pixels';
export { fill, type IOmissions, type IRecipe, type Row } from './recipe';
export { drawSVG, sized, vegaLiteSpec, withView, type ICaption, type ILook } from './still';
export {
  DARK_THEME,
  LIGHT_THEME,
  PAGE_DARK,
  PAGE_LIGHT,
  readTheme,
  themeConfig,
  watchTheme,
  type ITheme
} from './theme';
export { Zoom, type Interval, type IZoomable, type IZoomOptions } from './zoom';
export { warmVega } from './vega';
