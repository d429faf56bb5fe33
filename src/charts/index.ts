export { Chart, type IChartOptions, TextSpace } from './chart';
export {
  ColorScale,
  colorTable,
  hexOf,
  mixed,
  type Extent,
  type IColorLook,
  type Transform,
  lowMagnitude,
  contrastColor,
  flagColor
} from './color-scale';
export { greatestOf, middleOf, telling } from './extremes';
export { followPointer, type IPointerFollower } from './follow-pointer';
export { formatBytes, formatCount, formatFull, formatInteger, formatNumber, timeWords } from './format';
export { legend, type IColorLegend, type ILegendWords, SigmaScale } from './legend';
export { default as COLORS } from '#protocol/charts/colors.json';
export { toDataUrl, type IPicture, Pictures } from './pictures';
export {
  domains,
  frames,
  locate,
  type IPlotFrame,
  type IPlace,
  type ISceneView,
  type IMatrix,
  type IPixels
} from './pixels';
export { ChartError, fill, type IOmissions, type IRecipe, type Row } from './recipe';
export { drawSVG, sized, vegaLiteSpec, withView, type ICaption, type ILook } from './still';
export { Zoom, type Interval, type IZoomable, type IZoomOptions } from './zoom';
export { DARK_THEME, LIGHT_THEME, readTheme, themeConfig, watchTheme, type ITheme, warmVega } from './vega';
