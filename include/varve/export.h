// VARVE_API marks what libvarve.so exports. The library is compiled with hidden visibility: a name
// without the mark cannot be linked to. A C header.

#ifndef VARVE_EXPORT_H_
#define VARVE_EXPORT_H_

#if defined(__GNUC__)
#define VARVE_API __attribute__((visibility("default")))
#else
#define VARVE_API
#endif

#endif  // VARVE_EXPORT_H_
