export * from './exports';
export * from './mime';
export * from './runs';
export * from './view-host';
export * from './view-json';
